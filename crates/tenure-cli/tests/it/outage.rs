//! The promises that need real outages: real daemons, real stores that are killed, frozen, emptied and failed over, and
//! members that live through it.
//!
//! Every wait is for something that happens. Where a time itself is promised, the test measures it, prints it, and
//! allows a busy machine a fixed delay on top.

mod bad_input;
mod brake;
mod disk;
mod due;
mod failover;
mod fleet;
mod lost;
mod nodes;
mod power;
mod restart;
mod silent;
mod slow;
mod sweepers;
mod witness;

/// Makes one test per server of functions that take its flavour.
macro_rules! on_each_server {
    ($($name:ident),+ $(,)?) => {
        mod valkey {
            $(#[test] fn $name() { super::$name(tenure_testkit::valkey::Flavour::Valkey); })+
        }
        mod redis {
            $(#[test] fn $name() { super::$name(tenure_testkit::valkey::Flavour::Redis); })+
        }
    };
}
pub(crate) use on_each_server;
