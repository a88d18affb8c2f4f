//! Leases in random histories: shared ones, and operators that release them.

use proptest::prelude::*;

use super::{ALL, Op, Pair};
use crate::conformance::world::{lease, member};
use crate::lease::{Acquire, Holders, LeaseOf, Leases, LeasesOf, ReleaseLeases, RevokeLease, RevokeOf, Token};
use crate::target::TargetOf;

/// Few leases and few tenures, so that they meet.
pub(super) fn operation() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (0..6u16, 0..3u8, 1..4u8).prop_map(|(t, l, n)| Op::Share(t, l, n)),
        2 => (0..6u16, 0..3u8, 0..2u8, prop::option::weighted(0.3, 0..14u8))
            .prop_map(|(t, l, n, to)| Op::GiveUp(t, l, n, to)),
        1 => (0..3u8, 0..14u8).prop_map(|(l, m)| Op::Revoke(l, m)),
        1 => prop::collection::vec((0..6u16, prop::option::weighted(0.1, Just(1000u16)), 91..255u8), 1..4).prop_map(Op::Beat),
    ]
}

impl Pair {
    pub(super) async fn share(&mut self, t: u16, l: u8, holders: u8) -> Result<(), String> {
        let acquire = Acquire {
            holders: Holders::new(u16::from(holders)).map_err(|error| error.to_string())?,
            ..Acquire::new(self.tenure(t), vec![lease(&format!("l{l}"))])
        };
        self.acquire(acquire).await
    }

    pub(super) async fn revoke(&mut self, l: u8, m: u8) -> Result<(), String> {
        let newest = self.granted.last().map(|(.., token)| RevokeOf::Token(*token));
        let of = match m % 3 {
            0 => RevokeOf::Any,
            1 => RevokeOf::Holder(member(&format!("m{m}"))),
            _ => newest.unwrap_or(RevokeOf::Any),
        };
        let lease = lease(&format!("l{l}"));
        self.both(RevokeLease { lease, of }).await.map(drop)
    }

    pub(super) async fn acquire(&mut self, acquire: Acquire) -> Result<(), String> {
        let (tenure, leases) = (acquire.tenure.clone(), acquire.leases.clone());
        if let Ok(acquired) = self.both(acquire).await? {
            self.revisions.push(acquired.revision);
            for (name, outcome) in leases.into_iter().zip(&acquired.outcomes) {
                let grant = outcome.token().map(|token| (tenure.clone(), name, token));
                self.granted.extend(grant);
            }
        }
        Ok(())
    }

    /// Mostly a granted lease, by any tenure that held it; sometimes one that was not granted.
    pub(super) async fn give_up(&mut self, t: u16, l: u8, n: u8, to: Option<u8>) -> Result<(), String> {
        let to = to.map(|m| member(&format!("m{m}")));
        let one = Token::new(1).map_err(|error| error.to_string())?;
        let (tenure, leases) = match self.granted.len() {
            0 => (self.tenure(t), vec![(lease("l0"), one)]),
            len => {
                let (tenure, name, token) = self.granted[len - 1 - usize::from(t) % len].clone();
                let mut given = vec![(name, token)];
                given.extend((0..n).map(|_| (lease(&format!("l{l}")), token)));
                (tenure, given)
            }
        };
        let given = self
            .both(ReleaseLeases {
                tenure,
                leases,
                to,
                seen: crate::membership::Revision::NONE,
            })
            .await?;
        self.revisions.extend(given.iter().map(|given| given.revision));
        Ok(())
    }

    pub(super) async fn read_leases(&self, m: u8, k: u8) -> Result<(), String> {
        let (member, name) = (member(&format!("m{m}")), lease(&format!("l{k}")));
        self.both(LeaseOf { lease: name.clone() }).await?.ok();
        self.both(TargetOf { target: name }).await?.ok();
        for holder in [None, Some(member)] {
            self.both(Leases { holder, page: ALL }).await?.ok();
        }
        let (tenure, page) = (self.tenure(u16::from(m)), ALL);
        self.both(LeasesOf { tenure, page }).await.map(drop)
    }
}
