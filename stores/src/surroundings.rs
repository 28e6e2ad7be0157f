//! What the engines take from the environment: the variables that people already have set for them.

use git_fence_core::{StoreFault, text};
use git_fence_system::{Environment, env, env::Variable};
use std::process::Command;

/// The environment, read once.
#[derive(Debug, Clone, Default)]
pub struct Surroundings(Environment);

impl Surroundings {
    /// Those of this process.
    pub fn of(environment: Environment) -> Surroundings {
        Surroundings(environment)
    }

    pub(crate) fn text(&self, variable: Variable) -> Option<String> {
        self.0.text(variable).map(str::to_owned)
    }

    /// A bearer token, from a variable or from a command that prints one.
    pub(crate) fn token(&self) -> Result<Option<String>, StoreFault> {
        if let Some(token) = self.text(env::GIT_FENCE_STORE_TOKEN) {
            return Ok(Some(token));
        }
        let Some(command) = self.text(env::GIT_FENCE_STORE_TOKEN_COMMAND) else { return Ok(None) };
        let name = env::GIT_FENCE_STORE_TOKEN_COMMAND.name;
        let hint = format!("{name} must print a token:  {name}='gcloud auth print-access-token'");
        let ran = Command::new("sh").args(["-c", &command]).output();
        let ran = ran.map_err(|e| StoreFault::denied(format!("cannot run {name}: {e}"), &hint))?;
        if !ran.status.success() {
            let said = text::one_line(&ran.stderr, 200);
            return Err(StoreFault::denied(format!("{name} failed: {said}"), hint));
        }
        let token = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
        Ok(Some(token).filter(|token| !token.is_empty()))
    }
}
