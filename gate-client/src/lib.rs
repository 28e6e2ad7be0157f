//! The client of git-fence: how a push carries its token.
//!
//! For now this is the wire form alone. What a client writes here, the gate reads with
//! [`git_fence_core::read_options`].
//!
//! ```
//! use git_fence_core::{FenceName, Token};
//!
//! let option = git_fence_client::token_option(&FenceName::repo(), Token::parse(b"42").unwrap());
//! assert_eq!(option, "fence-token=repo:42"); // git push -o fence-token=repo:42
//! ```

use git_fence_core::{FenceName, Token};

/// The push option that carries `token` for `fence`.
pub fn token_option(fence: &FenceName, token: Token) -> String {
    format!("fence-token={fence}:{token}")
}
