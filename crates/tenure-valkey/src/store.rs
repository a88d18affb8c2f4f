//! The store itself: what it is opened with, what all its verbs share, and the trait that sums them up.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::call::{Ask, Op, Reply, Serve, serve_all};
use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::event::EventId;
use tenure_core::id::{Group, RegistryName};
use tenure_core::store::{
    Backend, Call, FindGroups, Finding, Health, ListGroups, NewestEvents, Now, Probe, Probed, StoreOptions,
};
use tenure_core::sweep::BATCH;
use tenure_core::time::{StoreTime, micros};

use crate::connection::{Connection, ConnectionOptions};
use crate::keys::Marker;
use crate::list::GroupList;
use crate::script::{Invocation, Lateness};
use crate::scripts::Scripts;
use crate::{examine, keys, session};

/// The longest `max_ttl`: everything stays far below 2^53 µs.
const LONGEST_TTL: Duration = Duration::from_secs(365 * 86_400);
/// How many items one script takes at most of those that are written in half a dozen keys each.
const WRITES: usize = 100;

/// A store on Valkey 8 or Redis 7.
#[derive(Debug)]
pub struct ValkeyStore {
    pub(crate) connection: Connection,
    pub(crate) options: StoreOptions,
    pub(crate) scripts: Scripts,
    /// Who this is among all that sweep a group: chance makes it unlike any other.
    pub(crate) name: String,
    marker: Marker,
    pub(crate) list: GroupList,
}

impl ValkeyStore {
    /// Opens a store by URL: `valkey://[user:password@]host[:port][/db]`, or `redis://…`; with TLS `valkeys://…`, or
    /// `rediss://…`; with sentinels `valkey-sentinel://host[:port],…/name`; a cluster by some of its nodes,
    /// `valkey-cluster://host[:port],…`. `docs/stores.md` has the settings that may follow a `?`.
    ///
    /// A server that is away is no error: the store starts down, calls fail at once with `Unavailable`, and it comes up
    /// by itself, so that a daemon can start before its store. The first attempt is waited for (at most the connect
    /// timeout), so that the next call finds the store up when it is.
    ///
    /// The store lives on the tokio runtime on which it is opened; its methods may be called from any.
    ///
    /// # Errors
    /// `Misconfigured` for a URL, files of TLS, options or a thread without a runtime that cannot work.
    pub async fn open(
        url: &str,
        options: StoreOptions,
        connection: ConnectionOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        check(&options)?;
        let name = format!("{:016x}", clock.entropy());
        let scripts = Scripts::new(connection.on_test_clock());
        let connection = Connection::open_any(url, connection, |cluster| keys::needs(Marker::of(cluster)), clock)?;
        let marker = Marker::of(connection.is_cluster());
        connection.first_try().await;
        Ok(Arc::new(Self {
            connection,
            options,
            scripts,
            name,
            marker,
            list: GroupList::default(),
        }))
    }

    /// A call that changes a group. See `lib.lua` for its arguments.
    pub(crate) fn changing(&self, group: &Group, lateness: Lateness) -> Invocation {
        self.act_on(group);
        self.over(group, lateness)
    }

    /// The same for what is no reason to have a group on the list: looking after it, and forgetting it.
    pub(crate) fn over(&self, group: &Group, lateness: Lateness) -> Invocation {
        self.with_options(keys::changing(group, self.marker), lateness)
    }

    fn with_options(&self, keys: Vec<String>, lateness: Lateness) -> Invocation {
        let options = &self.options;
        Invocation::new(keys, lateness)
            .number(micros(options.max_ttl))
            .arg(options.brake.share.to_string())
            .number(options.brake.floor)
            .number(micros(options.brake.hold))
            .number(options.events_max)
    }

    /// A call that changes a group and must not do so late.
    pub(crate) fn punctual(&self, group: &Group, call: Call) -> Invocation {
        self.changing(group, Lateness::Refused(call))
    }

    /// The same on a registry as well.
    pub(crate) fn punctual_on(&self, group: &Group, registry: &RegistryName, call: Call) -> Invocation {
        let mut keys = keys::changing(group, self.marker);
        keys.push(keys::claims(group, registry));
        self.act_on(group);
        self.with_options(keys, Lateness::Refused(call))
    }

    /// Notes in the marker of all groups that a new one has nothing to wait for.
    pub(crate) async fn mark_settled(&self) -> Result<()> {
        if let Marker::Shared = self.marker {
            let mut cmd = redis::cmd("HSET");
            cmd.arg(keys::STORE).arg("settled").arg(1);
            self.connection.command_on(keys::STORE, cmd).await?;
        }
        Ok(())
    }

    /// A call that reads a group.
    pub(crate) fn reading(group: &Group) -> Invocation {
        Invocation::new(vec![keys::meta(group)], Lateness::Harmless)
    }
}

fn check(options: &StoreOptions) -> Result<()> {
    let wrong = |what: &str| Err(Error::new(ErrorKind::Misconfigured, what.to_owned()));
    if options.max_ttl > LONGEST_TTL || options.brake.hold > LONGEST_TTL {
        return wrong("max_ttl and the brake's hold can be at most a year");
    }
    if !options.brake.share.is_finite() || options.brake.share < 0.0 {
        return wrong("the brake's share has to be a number from 0 to 1");
    }
    if options.events_max == 0 || options.events_max > u64::from(u32::MAX) || options.brake.floor > u64::from(u32::MAX)
    {
        return wrong("events.max has to be from 1 to 4294967295, and the brake's floor at most that");
    }
    if options.events_bytes == 0 || options.events_bytes > tenure_core::Term::MAX {
        return wrong("events.bytes has to be from 1 to 9007199254740991");
    }
    Ok(())
}

#[async_trait]
impl Backend for ValkeyStore {
    async fn call(&self, ask: Ask) -> Result<Reply> {
        serve_all(self, ask).await
    }

    fn max_ttl(&self) -> Duration {
        self.options.max_ttl
    }

    /// As many as take a script about a millisecond of the server's time.
    fn part(&self, op: &Op) -> usize {
        match op {
            Op::Attach(ask) => session::part_of(&ask.attaches),
            Op::Detach(_) | Op::PutProviders(_) | Op::Seat(_) => WRITES,
            _ => BATCH as usize,
        }
    }

    fn place(&self) -> String {
        self.connection.place().to_owned()
    }

    fn health(&self) -> Health {
        self.connection.health()
    }

    fn answers_within(&self) -> Option<Duration> {
        self.connection.answers_within()
    }

    fn node_of(&self, group: &Group) -> Option<String> {
        self.connection.node_of(&keys::meta(group))
    }

    async fn examine(&self) -> Vec<Finding> {
        examine::examine(&self.connection).await
    }

    async fn close(&self) {
        self.connection.close();
    }
}

#[async_trait]
impl Serve<Now> for ValkeyStore {
    async fn serve(&self, _: &Option<Group>, _: Now, _: Call) -> Result<StoreTime> {
        self.connection.time().await
    }
}

#[async_trait]
impl Serve<Probe> for ValkeyStore {
    async fn serve(&self, _: &Option<Group>, ask: Probe, _: Call) -> Result<Probed> {
        self.probe_nodes(ask.patience).await
    }
}

#[async_trait]
impl Serve<ListGroups> for ValkeyStore {
    async fn serve(&self, _: &Option<Group>, _: ListGroups, _: Call) -> Result<Vec<Group>> {
        self.list_groups().await
    }
}

#[async_trait]
impl Serve<NewestEvents> for ValkeyStore {
    async fn serve(&self, _: &Option<Group>, ask: NewestEvents, _: Call) -> Result<Vec<(Group, EventId)>> {
        self.look_for_events(&ask.groups).await
    }
}

#[async_trait]
impl Serve<FindGroups> for ValkeyStore {
    async fn serve(&self, _: &Option<Group>, _: FindGroups, _: Call) -> Result<bool> {
        self.search_groups().await
    }
}
