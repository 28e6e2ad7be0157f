//! The environment of the process, read once. Everything else works on values.
//!
//! Another Unix: the same.

use crate::env::Variable;
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::Command,
};

/// The environment variables of this process, or those for another one.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The environment of this process. Call it once, at the start.
    pub fn read() -> Environment {
        Environment::of(std::env::vars_os())
    }

    /// An environment of these variables.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
        Environment(variables.into_iter().collect())
    }

    /// The value of a variable. An empty variable counts as unset.
    pub fn get(&self, variable: Variable) -> Option<&OsStr> {
        self.named(variable.name)
    }

    /// The same by name, for libraries that use their own names.
    pub fn named(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The value of a variable, if it is UTF-8.
    pub fn text(&self, variable: Variable) -> Option<&str> {
        self.get(variable).and_then(OsStr::to_str)
    }

    /// The value of a variable, as a path.
    pub fn path(&self, variable: Variable) -> Option<PathBuf> {
        self.get(variable).map(PathBuf::from)
    }

    /// The value of the variable with number `n`, even if it is empty.
    pub fn nth(&self, variable: Variable, n: usize) -> Option<&OsStr> {
        self.0.get(OsStr::new(&variable.nth(n))).map(OsString::as_os_str)
    }

    /// The number of variables.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All variables.
    pub fn all(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }

    /// Sets a variable.
    pub fn set(&mut self, variable: Variable, value: impl Into<OsString>) {
        self.0.insert(variable.name.into(), value.into());
    }

    /// Sets the variable with number `n`.
    pub fn set_nth(&mut self, variable: Variable, n: usize, value: impl Into<OsString>) {
        self.0.insert(variable.nth(n).into(), value.into());
    }

    /// Removes a variable.
    pub fn remove(&mut self, variable: Variable) {
        self.0.remove(OsStr::new(variable.name));
    }

    /// Removes the variable with number `n`.
    pub fn remove_nth(&mut self, variable: Variable, n: usize) {
        self.0.remove(OsStr::new(&variable.nth(n)));
    }

    /// A copy without these variables.
    pub fn without(&self, variables: &[Variable]) -> Environment {
        let mut rest = self.clone();
        variables.iter().for_each(|variable| rest.remove(*variable));
        rest
    }

    /// The same with this variable.
    pub fn with(mut self, variable: Variable, value: impl Into<OsString>) -> Environment {
        self.set(variable, value);
        self
    }

    /// Sets exactly this environment for `command`.
    pub fn give_to(&self, command: &mut Command) {
        command.env_clear().envs(&self.0);
    }
}
