//! (in the making)

pub mod batch;
pub mod heart;
pub mod loops;
pub mod member_id;
pub mod meters;
#[cfg(test)]
mod testing;
