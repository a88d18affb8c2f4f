//! Tenure's daemon, over HTTP.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use tenure::connect::OpenOptions;
use tenure::{ClientSettings, JoinOptions, Tenure};
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::membership::{Beat, BeatReply, Join, Labels, Revision};
use tenure_core::store::{Call, PageRequest, Store};
use tenure_testkit::{Availability, have, http};

use super::super::beats_batch::{all_renewed, beats};
use super::peer::{Holder, Locks, Peer, Way, share};
use crate::daemon::Daemon;
use crate::load::{Lane, request};
use crate::subject;
use crate::valkey::ValkeyServer;

const GROUP: &str = "bench";
/// Beats in a request of the batched way, as a gateway sends them.
pub(super) const BATCH: usize = 100;
/// How long a waiter waits for the lease.
const WAIT: Duration = Duration::from_secs(60);

/// A daemon, on its embedded file or on Valkey.
pub(super) struct Daemons {
    daemon: Daemon,
    valkey: Option<ValkeyServer>,
    store: Arc<dyn Store>,
    group: Group,
    tenures: Mutex<Vec<TenureId>>,
    ttl: Duration,
}

impl Daemons {
    pub(super) async fn start(valkey: Option<ValkeyServer>, ttl: Duration) -> Result<Self> {
        let daemon = Daemon::start(valkey.as_ref().map(ValkeyServer::url)).await?;
        // A new store grants no lease for a while.
        let (status, answer) = http::request(daemon.addr(), "POST", "/v1/settle", "")?;
        ensure!(status == 200, "not settled: {status} {answer}");
        let store = subject::open(&daemon.url()).await?;
        let (group, tenures) = (subject::group(GROUP)?, Mutex::default());
        Ok(Self {
            daemon,
            valkey,
            store,
            group,
            tenures,
            ttl,
        })
    }

    pub(super) async fn on_valkey(ttl: Duration) -> Result<Option<Self>> {
        match have("valkey-server") {
            Availability::Found(_) => Self::start(Some(ValkeyServer::start()?), ttl).await.map(Some),
            Availability::Missing { .. } => Ok(None),
        }
    }

    fn tenures(&self) -> Vec<TenureId> {
        self.tenures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Peer for Daemons {
    fn processes(&self) -> Result<Vec<u32>> {
        let valkey = self.valkey.as_ref().map(ValkeyServer::pid);
        Ok(std::iter::once(self.daemon.pid()?).chain(valkey).collect())
    }

    async fn join(&self, members: usize) -> Result<()> {
        let tenures = subject::fill(&self.store, &self.group, members, self.ttl).await?;
        *self.tenures.lock().unwrap_or_else(PoisonError::into_inner) = tenures;
        Ok(())
    }

    async fn lanes(&self, members: Range<usize>, lanes: usize) -> Result<Vec<Lane>> {
        let (addr, tenures) = (self.daemon.addr(), self.tenures());
        let mut all = Vec::new();
        for lane in 0..lanes {
            let beat = |number: usize| {
                let path = format!("/v1/groups/{GROUP}/tenures/{}/beat", tenures[number]);
                request(addr, "PUT", &path, "")
            };
            let requests = share(members.clone(), lane, lanes).map(beat).collect();
            all.push(Lane::http(addr, requests, 0.., is_renewed).await?);
        }
        Ok(all)
    }

    async fn other_ways(&self, _members: usize, lanes: usize) -> Result<Vec<Way>> {
        let (addr, tenures) = (self.daemon.addr(), self.tenures());
        let batches = tenures.chunks_exact(BATCH);
        let requests: Arc<[Vec<u8>]> = batches.map(|batch| beats(addr, GROUP, batch)).collect();
        let mut all = Vec::new();
        for lane in 0..lanes {
            all.push(Lane::http(addr, Arc::clone(&requests), lane.., all_renewed).await?);
        }
        Ok(vec![Way::batched("100 in a request", BATCH, all)])
    }

    async fn alive(&self) -> Result<usize> {
        let mut page = PageRequest {
            after: None,
            limit: 1_000,
        };
        let mut alive = 0;
        loop {
            let found = self.store.members(&self.group, &page).await?;
            alive += found.items.iter().filter(|member| member.alive).count();
            if found.next.is_none() {
                return Ok(alive);
            }
            page.after = found.next;
        }
    }

    fn locks(&self) -> Vec<(&'static str, Arc<dyn Locks>)> {
        let (store, group, url) = (Arc::clone(&self.store), self.group.clone(), self.daemon.url());
        vec![("", Arc::new(Leases { store, group, url }))]
    }
}

struct Leases {
    store: Arc<dyn Store>,
    group: Group,
    url: String,
}

#[async_trait]
impl Locks for Leases {
    async fn hold(&self, lock: &str, ttl: Duration) -> Result<Box<dyn Holder>> {
        let (member, labels) = (MemberId::new(format!("holder-of-{lock}"))?, Labels::default());
        let join = Join { member, ttl, labels };
        let tenure = self.store.join(&self.group, &join, Call::default()).await?.tenure;
        let leases = [LeaseName::new(lock)?];
        let acquired = self
            .store
            .acquire(&self.group, &tenure, &leases, Call::default())
            .await?;
        acquired.outcomes[0].token().context("a free lease")?;
        let (store, group, revision) = (Arc::clone(&self.store), self.group.clone(), acquired.revision);
        Ok(Box::new(LeaseHolder {
            store,
            group,
            tenure,
            revision,
        }))
    }

    async fn wait(&self, lock: &str) -> Result<Instant> {
        let (options, settings) = (OpenOptions::default(), ClientSettings::default());
        let tenure = Tenure::connect_with(&self.url, options, settings).await?;
        let join = JoinOptions::named(&format!("waiter-for-{lock}"))?;
        let membership = tenure.group(GROUP)?.join(join).await?;
        let answer = membership.leases().acquire_within(lock, WAIT).await?;
        answer.granted().context("another member holds the lease")?;
        Ok(Instant::now())
    }
}

struct LeaseHolder {
    store: Arc<dyn Store>,
    group: Group,
    tenure: TenureId,
    revision: Revision,
}

#[async_trait]
impl Holder for LeaseHolder {
    async fn renew(&mut self) -> Result<()> {
        let (tenure, revision) = (self.tenure.clone(), self.revision);
        let beaten = self
            .store
            .beat(
                &self.group,
                &[Beat {
                    tenure,
                    ttl: None,
                    revision,
                    seen: Revision::NONE,
                }],
            )
            .await?;
        let renewed = matches!(beaten.replies[..], [BeatReply::Renewed { .. }]);
        ensure!(renewed, "the holder's beat: {:?}", beaten.replies);
        Ok(())
    }
}

fn is_renewed(body: &[u8]) -> bool {
    body.windows(13).any(|window| window == b"expires_in_ms")
}
