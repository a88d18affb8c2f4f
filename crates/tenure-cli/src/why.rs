//! `tenure why`: the history of a member, tenure, lease, session or key.

use std::collections::BTreeSet;

use clap::Args;
use tenure::why::{Explanation, Subject, why};
use tenure_core::event::{Event, EventKind, EventQuery};
use tenure_core::id::{Key, LeaseName, MemberId, RegistryName, SessionId};
use tenure_core::store::MAX_PAGE;
use tenure_core::{Result, Store};

use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::exit::{DONE, say};
use crate::groups;
use crate::output::{json, lines};

/// The most registries of one key that are shown.
const MAX_REGISTRIES: usize = 20;

/// Shows what happened to a member, key, lease or session, when, and why.
///
/// The id names a member (NAME), a tenure (NAME@TERM), a lease (lease:NAME), a session (session:ID) or a key (REGISTRY/KEY).
/// A plain name is looked up as a member, then as a lease, a session, and an evicted key.
#[derive(Debug, Clone, Args)]
pub(crate) struct Why {
    /// A member, tenure, lease, session or key.
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
        groups::must_exist(store, &self.group.name).await?;
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
        told.iter().try_for_each(|one| lines(one.to_string().trim_end()))
    }

    /// The subjects that an id can mean: a plain name is a member, lease or session, or a key of a registry in the events.
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
        let lease = LeaseName::new(&self.id)?;
        if store.lease_of(&self.group.name, &lease).await?.is_some() {
            return Ok(vec![Subject::Lease(lease)]);
        }
        let session = Subject::parse(&format!("session:{}", self.id))?;
        let id = SessionId::new(&self.id)?;
        if store.session(&self.group.name, &id).await?.is_some() {
            return Ok(vec![session]);
        }
        let named = self.named(store, member).await?;
        if named.member {
            return Ok(vec![subject]);
        }
        let mut subjects = Vec::new();
        subjects.extend(named.lease.then_some(Subject::Lease(lease)));
        subjects.extend(named.session.then_some(session));
        let key = Key::new(&self.id)?;
        let keys = named.registries.into_iter();
        subjects.extend(keys.map(|registry| Subject::Key(registry, key.clone())));
        if subjects.is_empty() {
            if !self.format.json {
                say(format_args!(
                    "if \"{member}\" is a key, name its registry: REGISTRY/{member}"
                ));
            }
            return Ok(vec![subject]);
        }
        Ok(subjects)
    }

    /// The things of this name in the events.
    async fn named(&self, store: &dyn Store, name: &MemberId) -> Result<NameMatches> {
        let mut named = NameMatches::default();
        let mut query = EventQuery {
            after: None,
            limit: MAX_PAGE,
            kinds: vec![
                EventKind::Joined,
                EventKind::Evicted,
                EventKind::LeaseGranted,
                EventKind::LeaseTakenOver,
                EventKind::LeaseReleased,
                EventKind::LeaseRevoked,
                EventKind::TargetChanged,
                EventKind::SessionCreated,
                EventKind::SessionDisconnected,
                EventKind::SessionReaped,
                EventKind::SessionDeleted,
            ],
            ..EventQuery::default()
        };
        loop {
            let page = store.events(&self.group.name, &query).await?;
            page.events.iter().for_each(|event| named.hear(event, name));
            if named.member || Some(page.last) == query.after || named.registries.len() >= MAX_REGISTRIES {
                return Ok(named);
            }
            query.after = Some(page.last);
        }
    }
}

/// The kinds of things that had a name.
#[derive(Debug, Default)]
struct NameMatches {
    /// A member that joined.
    member: bool,
    /// A lease or a target.
    lease: bool,
    /// A session.
    session: bool,
    /// The registries out of which a key of this name was evicted.
    registries: BTreeSet<RegistryName>,
}

impl NameMatches {
    fn hear(&mut self, event: &Event, name: &MemberId) {
        self.member |= event.member() == Some(name);
        self.lease |= event
            .lease
            .as_ref()
            .is_some_and(|lease| lease.as_str() == name.as_str());
        self.session |= event
            .session
            .as_ref()
            .is_some_and(|session| session.as_str() == name.as_str());
        let keys = event.keys.iter().filter_map(|key| key.split_once('/'));
        self.registries.extend(
            keys.filter(|(_, key)| *key == name.as_str())
                .filter_map(|(registry, _)| RegistryName::new(registry).ok()),
        );
    }
}
