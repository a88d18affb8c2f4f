//! Shared by the tests: a server with foreign sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_adopt::{KeyTemplate, ReapSettings, Reaper, SessionSettings, Sessions, Unit};
use tenure_core::clock::{Clock, SystemClock};
use tenure_testkit::resp::Reply;
use tenure_testkit::wait;
use tenure_valkey::ConnectionOptions;

pub(crate) const FIELD: &str = "last_disconnect";
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The age of an orphan in these tests.
pub(crate) const AGE: Duration = Duration::from_secs(1);

pub(crate) use crate::world::World;
use crate::world::connected;

impl World {
    /// A session disconnected at this time; `0` for an active one.
    pub(crate) fn session(&self, id: &str, since: &str) {
        self.run(&["HSET", &format!("session:{id}"), "name", id, FIELD, since]);
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.run(&["EXISTS", key]).int() == Some(1)
    }

    /// The members of a sorted set and their scores.
    pub(crate) fn entries(&self, key: &[u8]) -> BTreeMap<String, String> {
        let args: [&[u8]; 5] = [b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"];
        let texts = self.run(&args).texts();
        texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    /// A dump of all keys.
    pub(crate) fn everything(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let keys = self.run(&["KEYS", "*"]);
        let each = keys.items().iter().map(|key| {
            let Reply::Bulk(key) = key else { panic!("{key:?}") };
            let Reply::Bulk(dump) = self.run(&[b"DUMP".as_slice(), key]) else {
                panic!("cannot dump {key:?}")
            };
            (key.clone(), dump)
        });
        each.collect()
    }

    /// Waits until the server's uptime exceeds the age of an orphan, since a restart holds the reaper back.
    pub(crate) async fn has_run_for_a_while(&self) {
        wait::until_async("the uptime exceeds the age of an orphan", PATIENCE, async || {
            let info = self.run(&["INFO", "server"]).text();
            let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
            uptime.unwrap().parse::<u64>().unwrap() > AGE.as_secs()
        })
        .await;
    }
}

/// A time this long ago, in the unit.
pub(crate) fn ago(seconds: u64, unit: Unit) -> String {
    written(SystemClock::new().wall_micros() - seconds * 1_000_000, unit)
}

/// A disconnect time that makes no orphan during the test: slightly in the future. The current time in whole seconds
/// would be up to [`AGE`] old when written.
pub(crate) fn fresh(unit: Unit) -> String {
    written(SystemClock::new().wall_micros() + 1_800 * 1_000_000, unit)
}

fn written(micros: u64, unit: Unit) -> String {
    match unit {
        Unit::Seconds => (micros / 1_000_000).to_string(),
        Unit::Milliseconds => (micros / 1_000).to_string(),
    }
}

pub(crate) fn hour_ago() -> String {
    ago(3_600, Unit::Seconds)
}

pub(crate) fn settings() -> SessionSettings {
    let mut settings = SessionSettings::new("session:*", FIELD).unwrap();
    settings.rate = 1_000_000;
    settings
}

pub(crate) fn reaping() -> ReapSettings {
    ReapSettings {
        max_age: AGE,
        limit: None,
        refs: vec![KeyTemplate::parse("session:{id}:refs").unwrap()],
        aliases: vec![KeyTemplate::parse("alias:{field:broadcaster_id}").unwrap()],
    }
}

pub(crate) async fn sessions(url: &str, settings: SessionSettings) -> Sessions {
    // Tolerates a busy machine.
    let options = ConnectionOptions {
        request_timeout: Duration::from_secs(5),
        ..ConnectionOptions::default()
    };
    Sessions::new(connected(url, options).await, settings).unwrap()
}

pub(crate) async fn reaper(url: &str, settings: SessionSettings) -> Reaper {
    Reaper::new(sessions(url, settings).await, reaping()).unwrap()
}

/// Indexes all sessions once.
pub(crate) async fn indexed(world: &World, settings: SessionSettings) -> Sessions {
    let sessions = sessions(&world.server.url(), settings).await;
    sessions.index(&|_| {}).await.unwrap();
    sessions
}
