//! Who may do what: a real server that asks who is calling, over HTTP and TLS.

mod matrix;
mod often;
mod providers;
mod tls;
mod tokens;
