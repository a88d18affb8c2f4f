//! The store: how it is opened, the helpers that all verbs share, and the implementation of the store trait.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::call::{Op, Reply, Serve, StoreRequest, serve_all};
use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, RegistryName};
use tenure_core::store::{Backend, Call, FindGroups, Finding, Health, ListGroups, Now, Probe, Probed, StoreOptions};
use tenure_core::sweep::BATCH;
use tenure_core::time::{StoreTime, micros};

use crate::connection::{Connection, ConnectionOptions};
use crate::keys::Marker;
use crate::lease::Turns;
use crate::list::GroupList;
use crate::reply::Reader;
use crate::script::{Invocation, Lateness};
use crate::scripts::{Scripts, StoreKeys};
use crate::service::Services;
use crate::view::foreign;
use crate::{examine, keys, session};

/// The longest `max_ttl`: all times stay far below 2^53 µs.
const LONGEST_TTL: Duration = Duration::from_secs(365 * 86_400);
/// How many items one script takes at most when each is written to several keys.
const WRITES: usize = 100;

/// A store on Valkey 8 or Redis 7.
#[derive(Debug)]
pub struct ValkeyStore {
    pub(crate) connection: Connection,
    pub(crate) options: StoreOptions,
    pub(crate) scripts: Scripts,
    marker: Marker,
    pub(crate) list: GroupList,
    pub(crate) turns: Turns,
    /// What was last read of each server's pulse and index.
    pub(crate) services: Services,
    /// The identity that this process gives to data without one.
    id: String,
}

impl ValkeyStore {
    /// Opens a store by URL: `valkey://[user:password@]host[:port][/db]`, or `redis://…`; with TLS `valkeys://…`, or
    /// `rediss://…`; with sentinels `valkey-sentinel://host[:port],…/name`; a cluster by some of its nodes,
    /// `valkey-cluster://host[:port],…`. `docs/stores.md` lists the settings after a `?`.
    ///
    /// An unreachable server is not an error: the store starts down, calls fail at once with `Unavailable`, and it
    /// connects when the server is reachable. A daemon can therefore start before its store. `open` waits for the first
    /// attempt (at most the connect timeout), so the next call finds the store up if it is.
    ///
    /// The store runs on the tokio runtime on which it is opened; its methods may be called from any runtime.
    ///
    /// # Errors
    /// `Misconfigured` for an invalid URL, unusable TLS files, invalid options or a thread without a runtime.
    pub async fn open(
        url: &str,
        options: StoreOptions,
        connection: ConnectionOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        check(&options)?;
        let on_test_clock = connection.on_test_clock();
        let id = format!("{:016x}", clock.entropy());
        let connection = Connection::open_any(url, connection, |cluster| keys::needs(Marker::of(cluster)), clock)?;
        let marker = Marker::of(connection.is_cluster());
        let scripts = Scripts::new(on_test_clock, StoreKeys::of(connection.is_cluster()));
        connection.first_try().await;
        Ok(Arc::new(Self {
            connection,
            options,
            scripts,
            marker,
            list: GroupList::default(),
            turns: Turns::default(),
            services: Services::default(),
            id,
        }))
    }

    /// A call that changes a group. See `lib.lua` for its arguments.
    pub(crate) fn write_call(&self, group: &Group, lateness: Lateness) -> Invocation {
        self.act_on(group);
        self.maintenance_call(group, lateness)
    }

    /// The same for steps that do not add the group to the list: maintenance and removal.
    pub(crate) fn maintenance_call(&self, group: &Group, lateness: Lateness) -> Invocation {
        self.with_options(keys::write_keys(group, self.marker), lateness)
    }

    fn with_options(&self, keys: Vec<String>, lateness: Lateness) -> Invocation {
        let options = &self.options;
        Invocation::new(keys, lateness)
            .number(micros(options.max_ttl))
            .arg(options.brake.share.to_string())
            .number(options.brake.floor)
            .number(micros(options.brake.hold))
            .arg(format!("{} {}", options.events_max, options.events_bytes))
    }

    /// A call that changes a group and must not take effect late.
    pub(crate) fn timely_call(&self, group: &Group, call: Call) -> Invocation {
        self.write_call(group, Lateness::Refused(call))
    }

    /// The same, with the keys of a registry.
    pub(crate) fn timely_registry_call(&self, group: &Group, registry: &RegistryName, call: Call) -> Invocation {
        let mut keys = keys::write_keys(group, self.marker);
        keys.push(keys::claims(group, registry));
        self.act_on(group);
        self.with_options(keys, Lateness::Refused(call))
    }

    /// Records in the store's marker that a new group need not wait.
    pub(crate) async fn mark_settled(&self) -> Result<()> {
        if let Marker::Shared = self.marker {
            let mut cmd = redis::cmd("HSET");
            cmd.arg(keys::STORE).arg("settled").arg(1);
            self.connection.command_on(keys::STORE, cmd).await?;
        }
        Ok(())
    }

    async fn read_identity(&self) -> Result<Option<String>> {
        let mut read = redis::cmd("HMGET");
        read.arg(keys::STORE).arg("id");
        let value = self.connection.command_on(keys::STORE, read).await?;
        let id = Reader::new(value).and_then(|mut reply| reply.maybe_lossy_text());
        id.map_err(foreign)
    }

    /// A call that reads a group.
    pub(crate) fn read_call(group: &Group) -> Invocation {
        Invocation::new(vec![keys::meta(group)], Lateness::Harmless)
    }
}

fn check(options: &StoreOptions) -> Result<()> {
    let wrong = |what: &str| Err(Error::new(ErrorKind::Misconfigured, what.to_owned()));
    if options.max_ttl > LONGEST_TTL || options.brake.hold > LONGEST_TTL {
        return wrong("max_ttl and the brake's hold can be at most a year");
    }
    if !options.brake.share.is_finite() || options.brake.share < 0.0 {
        return wrong("the brake's share must be a number from 0 to 1");
    }
    if options.events_max == 0 || options.events_max > u64::from(u32::MAX) || options.brake.floor > u64::from(u32::MAX)
    {
        return wrong("events.max must be from 1 to 4294967295, and the brake's floor at most that");
    }
    if options.events_bytes == 0 || options.events_bytes > tenure_core::Term::MAX {
        return wrong("events.bytes must be from 1 to 9007199254740991");
    }
    Ok(())
}

#[async_trait]
impl Backend for ValkeyStore {
    async fn call(&self, ask: StoreRequest) -> Result<Reply> {
        serve_all(self, ask).await
    }

    fn max_ttl(&self) -> Duration {
        self.options.max_ttl
    }

    /// How many items take a script about a millisecond of the server's time.
    fn part(&self, op: &Op) -> usize {
        match op {
            Op::Attach(ask) => session::part_of(&ask.attaches),
            // Each lease is looked at with all its holders.
            Op::Acquire(ask) => (BATCH as usize / usize::from(ask.holders.get())).max(1),
            Op::Detach(_) | Op::PutProviders(_) | Op::EnsureTenures(_) => WRITES,
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

    async fn identity(&self) -> Result<Option<String>> {
        if let Some(id) = self.read_identity().await? {
            return Ok(Some(id));
        }
        let mut draw = redis::cmd("HSETNX");
        draw.arg(keys::STORE).arg("id").arg(&self.id);
        self.connection.command_on(keys::STORE, draw).await?;
        self.read_identity().await
    }

    fn node_of(&self, group: &Group) -> Option<String> {
        self.connection.node_of(&keys::meta(group))
    }

    async fn examine(&self) -> Vec<Finding> {
        examine::examine(&self.connection).await
    }

    async fn close(&self) {
        self.turns.close();
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
impl Serve<FindGroups> for ValkeyStore {
    async fn serve(&self, _: &Option<Group>, _: FindGroups, _: Call) -> Result<bool> {
        self.search_groups().await
    }
}
