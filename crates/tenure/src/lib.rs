//! (in the making)

pub mod heart;
pub mod member_id;
