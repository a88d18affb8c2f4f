//! Groups as a disk has them, at a start.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cell::Cell;
use super::disk::Loader;
use crate::id::{Group, Key, RegistryName, TenureId};
use crate::memory::GroupModel;
use crate::memory::rows::{GroupRow, Row, RowKey};
use crate::store::StoreOptions;
use crate::time::StoreTime;

/// Takes the rows of all groups, one group after the other.
pub(super) struct Load<'a> {
    options: &'a StoreOptions,
    now: StoreTime,
    done: BTreeMap<Group, Arc<Cell>>,
    current: Option<(Group, GroupModel)>,
    /// The claims of the current group, which are filled in together.
    claims: Vec<((RegistryName, Key), TenureId)>,
}

impl<'a> Load<'a> {
    pub(super) fn new(options: &'a StoreOptions, now: StoreTime) -> Self {
        Self {
            options,
            now,
            done: BTreeMap::new(),
            current: None,
            claims: Vec::new(),
        }
    }

    /// The groups, by name.
    pub(super) fn finish(mut self) -> BTreeMap<Group, Arc<Cell>> {
        self.close();
        self.done
    }

    fn close(&mut self) {
        if let Some((group, mut model)) = self.current.take() {
            model.fill_claims(std::mem::take(&mut self.claims));
            self.done.insert(group.clone(), Cell::loaded(group, model));
        }
    }
}

impl Loader for Load<'_> {
    fn group(&mut self, group: Group, row: GroupRow) {
        self.close();
        let model = GroupModel::load_group(self.options.clone(), row, self.now);
        self.current = Some((group, model));
    }

    fn row(&mut self, key: RowKey, row: Row) {
        let Some((_, model)) = &mut self.current else { return };
        match (key, row) {
            (RowKey::Claim(registry, key), Row::Claim(tenure)) => self.claims.push(((registry, key), tenure)),
            (key, row) => model.load_row(key, row, self.now),
        }
    }
}
