//! (in the making)

pub mod batch;
pub mod heart;
#[cfg(feature = "http")]
pub mod http;
pub mod loops;
pub mod member_id;
pub mod meters;
#[cfg(test)]
mod testing;
pub mod wire;
