//! What the process finds around itself, read once. Everything after it works on values.
//!
//! Another Unix: the same.

use crate::env::Variable;
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::Command,
};

/// The environment variables of this process, or those that another one is to get.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// That of this process: to be read once, at the start.
    pub fn read() -> Environment {
        Environment::of(std::env::vars_os())
    }

    /// One of these variables.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
        Environment(variables.into_iter().collect())
    }

    /// The value of a variable. An empty one is like none.
    pub fn get(&self, variable: Variable) -> Option<&OsStr> {
        self.named(variable.name)
    }

    /// The same, for a library that asks by a name of its own.
    pub fn named(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The value of a variable, where it is text.
    pub fn text(&self, variable: Variable) -> Option<&str> {
        self.get(variable).and_then(OsStr::to_str)
    }

    /// The value of a variable, as a path.
    pub fn path(&self, variable: Variable) -> Option<PathBuf> {
        self.get(variable).map(PathBuf::from)
    }

    /// The value of the one with number `n`, empty or not.
    pub fn nth(&self, variable: Variable, n: usize) -> Option<&OsStr> {
        self.0.get(OsStr::new(&variable.nth(n))).map(OsString::as_os_str)
    }

    /// How many variables there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }

    /// Sets a variable.
    pub fn set(&mut self, variable: Variable, value: impl Into<OsString>) {
        self.0.insert(variable.name.into(), value.into());
    }

    /// Sets the one with number `n`.
    pub fn set_nth(&mut self, variable: Variable, n: usize, value: impl Into<OsString>) {
        self.0.insert(variable.nth(n).into(), value.into());
    }

    /// Takes a variable away.
    pub fn remove(&mut self, variable: Variable) {
        self.0.remove(OsStr::new(variable.name));
    }

    /// Takes the one with number `n` away.
    pub fn remove_nth(&mut self, variable: Variable, n: usize) {
        self.0.remove(OsStr::new(&variable.nth(n)));
    }

    /// The same without these variables.
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

    /// Gives this environment, and nothing else, to `command`.
    pub fn give_to(&self, command: &mut Command) {
        command.env_clear().envs(&self.0);
    }
}
