//! The marks of a fence: a bounded map from resource to highest admitted token.
//!
//! The floor is the highest mark that was ever forgotten. The *lowest* mark is forgotten first, so the floor rises as
//! slowly as possible and stays at or below every remembered mark, unless it was raised explicitly.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tenure_core::lease::Token;

use super::Fenced;

pub(super) struct Marks {
    /// At least one.
    most: usize,
    floor: Option<Token>,
    marks: BTreeMap<Arc<str>, Token>,
    /// The same, ordered by mark: the first is forgotten next.
    by_mark: BTreeSet<(Token, Arc<str>)>,
}

impl Marks {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            floor: None,
            marks: BTreeMap::new(),
            by_mark: BTreeSet::new(),
        }
    }

    pub(super) fn admit(&mut self, resource: &str, token: Token) -> Result<(), Fenced> {
        let mark = self.seen(resource);
        if let Some(seen) = mark.or(self.floor)
            && token < seen
        {
            return Err(Fenced {
                resource: resource.to_owned(),
                token,
                seen,
                is_remembered: mark.is_some(),
            });
        }
        if mark != Some(token) {
            self.set(resource, mark, token);
        }
        Ok(())
    }

    fn set(&mut self, resource: &str, old: Option<Token>, mark: Token) {
        let name = match self.marks.get_key_value(resource) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(resource),
        };
        if let Some(old) = old {
            self.by_mark.remove(&(old, Arc::clone(&name)));
        }
        self.by_mark.insert((mark, Arc::clone(&name)));
        self.marks.insert(name, mark);
        while self.marks.len() > self.most {
            let Some((lowest, name)) = self.by_mark.pop_first() else {
                return;
            };
            self.marks.remove(&name);
            self.raise_floor(lowest);
        }
    }

    pub(super) fn raise_floor(&mut self, floor: Token) {
        self.floor = self.floor.max(Some(floor));
    }

    pub(super) fn seen(&self, resource: &str) -> Option<Token> {
        self.marks.get(resource).copied()
    }

    pub(super) fn floor(&self) -> Option<Token> {
        self.floor
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("resources", &self.marks.len())
            .field("most", &self.most)
            .field("floor", &self.floor)
            .finish_non_exhaustive()
    }
}
