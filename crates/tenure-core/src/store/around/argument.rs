//! How an argument of a store call is kept for later.

use std::time::Duration;

use crate::event::EventId;
use crate::membership::EndBy;
use crate::registry::ClaimMode;
use crate::roster::{Over, Task};
use crate::session::SessionState;
use crate::store::Call;
use crate::target::TargetSpec;
use crate::time::StoreTime;

/// An argument as a method takes it: by value, or borrowed for `'a`.
pub(super) trait Argument<'a>: Sized {
    /// It without the borrow.
    type Owned: Send + Sync + 'static;

    /// Keeps it.
    fn own(self) -> Self::Owned;

    /// Gives back what was kept.
    fn lend(owned: &'a Self::Owned) -> Self;

    /// How many things it lists; 0 when it is no list.
    fn items(&self) -> usize {
        0
    }
}

impl<'a, T: Clone + Send + Sync + 'static> Argument<'a> for &'a T {
    type Owned = T;

    fn own(self) -> T {
        self.clone()
    }
    fn lend(owned: &'a T) -> Self {
        owned
    }
}

impl<'a, T: Clone + Send + Sync + 'static> Argument<'a> for &'a [T] {
    type Owned = Vec<T>;

    fn own(self) -> Vec<T> {
        self.to_vec()
    }
    fn lend(owned: &'a Vec<T>) -> Self {
        owned
    }
    fn items(&self) -> usize {
        self.len()
    }
}

impl<'a, T: Clone + Send + Sync + 'static> Argument<'a> for Option<&'a T> {
    type Owned = Option<T>;

    fn own(self) -> Option<T> {
        self.cloned()
    }
    fn lend(owned: &'a Option<T>) -> Self {
        owned.as_ref()
    }
}

/// What is copied.
macro_rules! by_value {
    ($($type:ty),+) => {
        $(impl Argument<'_> for $type {
            type Owned = Self;

            fn own(self) -> Self {
                self
            }
            fn lend(owned: &Self) -> Self {
                *owned
            }
        })+
    };
}

impl<'a> Argument<'a> for &'a str {
    type Owned = String;

    fn own(self) -> String {
        self.to_owned()
    }
    fn lend(owned: &'a String) -> Self {
        owned
    }
}

by_value!(
    Call,
    ClaimMode,
    Duration,
    EndBy,
    EventId,
    Option<SessionState>,
    Over,
    StoreTime,
    TargetSpec,
    Task,
    bool,
    u32
);
