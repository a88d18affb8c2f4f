//! `tenure why`: what happened to a member, a tenure or a key, when, and for what reason.

use std::collections::BTreeSet;

use clap::Args;
use tenure::why::{Explanation, Subject, why};
use tenure_core::event::{EventKind, EventQuery};
use tenure_core::id::{Key, MemberId, RegistryName};
use tenure_core::store::MAX_PAGE;
use tenure_core::{Result, Store};

use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::exit::{DONE, say};
use crate::output::{json, line};

/// The most registries of one key that are told about.
const MAX_REGISTRIES: usize = 20;

/// Tells what happened to a member (NAME), a tenure (NAME@TERM) or a key (REGISTRY/KEY, or KEY alone once it was
/// evicted).
#[derive(Debug, Clone, Args)]
pub(crate) struct Why {
    /// A member, a tenure or a key.
    id: String,
    /// The registry of the key.
    #[arg(long, value_name = "REGISTRY")]
    registry: Option<RegistryName>,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Why {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let mut told = Vec::new();
        for subject in self.subjects(store).await? {
            told.push(why(store, &self.group.name, &subject).await?);
        }
        self.print(&told)?;
        Ok(DONE)
    }

    fn print(&self, told: &[Explanation]) -> anyhow::Result<()> {
        if self.format.json {
            return match told {
                [one] => json(one),
                many => json(&many),
            };
        }
        told.iter().try_for_each(|one| line(one.to_string().trim_end()))
    }

    /// What the id means: a bare name may be a member, or a key whose registry the events know.
    async fn subjects(&self, store: &dyn Store) -> Result<Vec<Subject>> {
        if let Some(registry) = &self.registry {
            return Ok(vec![Subject::Key(registry.clone(), Key::new(&self.id)?)]);
        }
        let subject = Subject::parse(&self.id)?;
        let Subject::Member(member) = &subject else {
            return Ok(vec![subject]);
        };
        if store.member(&self.group.name, member).await?.is_some() {
            return Ok(vec![subject]);
        }
        let Some(registries) = self.registries_of(store, member).await? else {
            return Ok(vec![subject]);
        };
        if registries.is_empty() {
            if !self.format.json {
                say(format_args!(
                    "if {member} is a key, name its registry: REGISTRY/{member}"
                ));
            }
            return Ok(vec![subject]);
        }
        let key = Key::new(&self.id)?;
        Ok(registries
            .into_iter()
            .map(|registry| Subject::Key(registry, key.clone()))
            .collect())
    }

    /// The registries out of which a key of this name was evicted; `None` when the name is that of a member of the past.
    async fn registries_of(&self, store: &dyn Store, name: &MemberId) -> Result<Option<BTreeSet<RegistryName>>> {
        let mut found = BTreeSet::new();
        let mut query = EventQuery {
            after: None,
            limit: MAX_PAGE,
            kinds: vec![EventKind::Joined, EventKind::Evicted],
        };
        loop {
            let page = store.events(&self.group.name, &query).await?;
            if page.events.iter().any(|event| event.member() == Some(name)) {
                return Ok(None);
            }
            let keys = page
                .events
                .iter()
                .flat_map(|event| &event.keys)
                .filter_map(|key| key.split_once('/'));
            found.extend(
                keys.filter(|(_, key)| *key == name.as_str())
                    .filter_map(|(registry, _)| RegistryName::new(registry).ok()),
            );
            if Some(page.last) == query.after || found.len() >= MAX_REGISTRIES {
                return Ok(Some(found));
            }
            query.after = Some(page.last);
        }
    }
}
