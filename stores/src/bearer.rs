//! Requests with a bearer token, which is asked for again when it has expired.

use crate::{
    deadline::Deadline,
    surroundings::Surroundings,
    web::{Answer, NoAnswer, Web},
};
use git_fence_core::StoreFault;
use reqwest::{StatusCode, blocking::RequestBuilder};
use std::time::Duration;

/// One answer may take this long.
const ONE_ANSWER: Duration = Duration::from_secs(20);

/// A token, and where to get another.
#[derive(Debug)]
pub(crate) struct Bearer {
    around: Surroundings,
    token: Option<String>,
}

impl Bearer {
    /// `instead` is used where the environment has no token.
    pub(crate) fn new(around: &Surroundings, instead: Option<&str>) -> Result<Bearer, StoreFault> {
        let token = around.token()?.or_else(|| instead.map(str::to_owned));
        Ok(Bearer { around: around.clone(), token })
    }

    /// Sends a request; with a new token, if the first one is not accepted. What was refused for its token was not done.
    pub(crate) fn send(&mut self, request: &RequestBuilder, until: &Deadline) -> Result<Answer, NoAnswer> {
        let answer = self.send_once(request, until)?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        match self.around.token() {
            Ok(Some(token)) if self.token.as_ref() != Some(&token) => {
                self.token = Some(token);
                self.send_once(request, until)
            }
            _ => Ok(answer),
        }
    }

    fn send_once(&self, request: &RequestBuilder, until: &Deadline) -> Result<Answer, NoAnswer> {
        let lost = || NoAnswer::unsent("the request cannot be sent twice".to_owned());
        let mut request = request.try_clone().ok_or_else(lost)?;
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        Web::send(request, ONE_ANSWER, until)
    }
}

/// The fault for an answer that denies access.
pub(crate) fn denied(endpoint: &str, answer: &Answer) -> StoreFault {
    let hint = "set GIT_FENCE_STORE_TOKEN, or GIT_FENCE_STORE_TOKEN_COMMAND to a command that prints a token, \
                and let its owner read and write the records";
    StoreFault::denied(format!("{endpoint} says {}", answer.in_words()), hint)
}

/// Whether an answer denies access.
pub(crate) fn is_denied(answer: &Answer) -> bool {
    matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}
