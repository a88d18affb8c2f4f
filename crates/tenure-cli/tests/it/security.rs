//! The built binary with authentication: tokens, TLS, the log of operators, and secrets that appear
//! nowhere.

mod agents;
mod audit;
mod crowd;
mod exposed;
mod guide;
mod secrets;
mod tls;
pub(crate) mod tokens;
