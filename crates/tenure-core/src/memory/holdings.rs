//! The holdings of each tenure: three ordered sets per group, derived from the rows of claims, leases and connections.

use std::collections::{BTreeMap, BTreeSet};

use super::table::Table;
use crate::id::{ConnectionId, Key, LeaseName, MemberId, RegistryName, SessionId, TenureId, Term};
use crate::lease::Place;
use crate::membership::Holdings;

/// A connection of a session.
pub(super) type Link = (SessionId, ConnectionId);

/// The holdings. A set changes only together with a count, so the counts also track the changes of the sets.
#[derive(Debug, Default)]
pub(super) struct Held {
    claims: BTreeSet<(TenureId, RegistryName, Key)>,
    /// A tenure has at most one place of a lease.
    leases: BTreeMap<(TenureId, LeaseName), Place>,
    connections: BTreeSet<(TenureId, SessionId, ConnectionId)>,
    /// The counts of tenures with holdings.
    pub(super) counts: Table<TenureId, Counts>,
}

/// The number of a tenure's holdings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    claims: u32,
    leases: u32,
    connections: u32,
}

impl Held {
    /// The number of a tenure's holdings.
    pub(super) fn of(&self, tenure: &TenureId) -> Holdings {
        let counts = self.counts.get(tenure).copied().unwrap_or_default();
        Holdings {
            claims: counts.claims.into(),
            leases: counts.leases.into(),
            connections: counts.connections.into(),
        }
    }

    /// Whether it has holdings.
    pub(super) fn has(&self, tenure: &TenureId) -> bool {
        self.counts.contains(tenure)
    }

    pub(super) fn has_claims(&self, tenure: &TenureId) -> bool {
        self.counts.get(tenure).is_some_and(|counts| counts.claims > 0)
    }

    pub(super) fn has_connections(&self, tenure: &TenureId) -> bool {
        self.counts.get(tenure).is_some_and(|counts| counts.connections > 0)
    }

    /// The tenure with the text of its earlier holdings, so that all share it.
    pub(super) fn own_name(&self, tenure: TenureId) -> TenureId {
        self.counts.own_key(&tenure).cloned().unwrap_or(tenure)
    }

    /// The tenures of a member with holdings, in the order of their text, from one on.
    pub(super) fn tenures_of<'a>(
        &'a self,
        member: &'a MemberId,
        from: Option<&TenureId>,
    ) -> impl Iterator<Item = &'a TenureId> {
        let from = from.filter(|from| from.member() == member).cloned();
        let from = from.unwrap_or_else(|| TenureId::new(member.clone(), Term::FIRST));
        let tenures = self.counts.range(from..).map(|(tenure, _)| tenure);
        tenures.take_while(move |tenure| tenure.member() == member)
    }

    /// All claims of a tenure.
    pub(super) fn claims<'a>(&'a self, tenure: &'a TenureId) -> impl Iterator<Item = (&'a RegistryName, &'a Key)> {
        let from = (tenure.clone(), RegistryName::first(), Key::first());
        let claims = self.claims.range(from..).take_while(move |(of, ..)| of == tenure);
        claims.map(|(_, registry, key)| (registry, key))
    }

    /// The keys of a tenure in one registry, from one on.
    pub(super) fn keys<'a>(
        &'a self,
        tenure: &'a TenureId,
        registry: &'a RegistryName,
        from: Option<&Key>,
    ) -> impl Iterator<Item = &'a Key> {
        let from = (
            tenure.clone(),
            registry.clone(),
            from.cloned().unwrap_or_else(Key::first),
        );
        let claims = self.claims.range(from..);
        let claims = claims.take_while(move |(of, name, _)| of == tenure && name == registry);
        claims.map(|(.., key)| key)
    }

    /// The leases of a tenure, from one on.
    pub(super) fn leases<'a>(
        &'a self,
        tenure: &'a TenureId,
        from: Option<&LeaseName>,
    ) -> impl Iterator<Item = &'a LeaseName> {
        let from = (tenure.clone(), from.cloned().unwrap_or_else(LeaseName::first));
        let leases = self.leases.range(from..).take_while(move |((of, _), _)| of == tenure);
        leases.map(|((_, lease), _)| lease)
    }

    /// The places of a tenure, by lease, from one on.
    pub(super) fn places<'a>(
        &'a self,
        tenure: &'a TenureId,
        from: Option<&LeaseName>,
    ) -> impl Iterator<Item = (LeaseName, Place)> + 'a {
        let from = (tenure.clone(), from.cloned().unwrap_or_else(LeaseName::first));
        let leases = self.leases.range(from..).take_while(move |((of, _), _)| of == tenure);
        leases.map(|((_, lease), place)| (lease.clone(), *place))
    }

    /// The place of a lease that a tenure has.
    pub(super) fn place_of(&self, tenure: &TenureId, lease: &LeaseName) -> Option<Place> {
        self.leases.get(&(tenure.clone(), lease.clone())).copied()
    }

    /// The connections of a tenure.
    pub(super) fn connections<'a>(&'a self, tenure: &'a TenureId) -> impl Iterator<Item = Link> + 'a {
        let from = (tenure.clone(), SessionId::first(), ConnectionId::first());
        let connections = self.connections.range(from..).take_while(move |(of, ..)| of == tenure);
        connections.map(|(_, session, connection)| (session.clone(), connection.clone()))
    }

    pub(super) fn add_claim(&mut self, tenure: TenureId, registry: RegistryName, key: Key) {
        self.count(&tenure, |counts| counts.claims += 1);
        self.claims.insert((tenure, registry, key));
    }

    /// Adds the claims of many tenures. The tenures and the claims of each are in order.
    pub(super) fn fill_claims(&mut self, tenures: Vec<(TenureId, Vec<(RegistryName, Key)>)>) {
        for (tenure, claims) in &tenures {
            let more = u32::try_from(claims.len()).unwrap_or(u32::MAX);
            self.count(tenure, |counts| counts.claims += more);
        }
        let of = |(tenure, claims): (TenureId, Vec<(RegistryName, Key)>)| {
            let claims = claims.into_iter();
            claims.map(move |(registry, key)| (tenure.clone(), registry, key))
        };
        let mut claims: BTreeSet<_> = tenures.into_iter().flat_map(of).collect();
        self.claims.append(&mut claims);
    }

    pub(super) fn drop_claim(&mut self, tenure: TenureId, registry: RegistryName, key: Key) {
        self.count(&tenure, |counts| counts.claims -= 1);
        self.claims.remove(&(tenure, registry, key));
    }

    pub(super) fn add_lease(&mut self, tenure: TenureId, (lease, place): &(LeaseName, Place)) {
        self.count(&tenure, |counts| counts.leases += 1);
        self.leases.insert((tenure, lease.clone()), *place);
    }

    pub(super) fn drop_lease(&mut self, tenure: TenureId, (lease, place): &(LeaseName, Place)) {
        self.count(&tenure, |counts| counts.leases -= 1);
        let key = (tenure, lease.clone());
        // Rows that are put back may pass through a state in which a tenure has two places.
        if self.leases.get(&key) == Some(place) {
            self.leases.remove(&key);
        }
    }

    pub(super) fn add_connection(&mut self, tenure: TenureId, (session, connection): Link) {
        self.count(&tenure, |counts| counts.connections += 1);
        self.connections.insert((tenure, session, connection));
    }

    pub(super) fn drop_connection(&mut self, tenure: TenureId, (session, connection): Link) {
        self.count(&tenure, |counts| counts.connections -= 1);
        self.connections.remove(&(tenure, session, connection));
    }

    fn count(&mut self, tenure: &TenureId, change: impl FnOnce(&mut Counts)) {
        if let Some(counts) = self.counts.change(tenure) {
            change(counts);
            if *counts == Counts::default() {
                self.counts.remove(tenure);
            }
            return;
        }
        let mut counts = Counts::default();
        change(&mut counts);
        self.counts.insert(tenure.clone(), counts);
    }
}
