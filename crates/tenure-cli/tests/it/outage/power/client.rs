//! A client that changes things and notes what was acknowledged, and compares it with what a daemon serves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tenure_testkit::http;

use super::Chance;

/// Longer than a cycle takes: no member lapses, so that everything that was acknowledged still holds.
const TTL_MS: u64 = 120_000;
const GRACE_MS: u64 = 3_600_000;
const KEYS: u64 = 12;
const LEASES: u64 = 6;
const SESSIONS: u64 = 4;

/// What the clients of one group know together.
#[derive(Default)]
pub(super) struct Shared {
    /// The highest number that the store has given out.
    highest: AtomicU64,
    /// The holder of each lease, until it asks for the release.
    held: Mutex<BTreeMap<String, String>>,
    /// What must not happen and did.
    wrong: Mutex<Vec<String>>,
    /// How many changes were acknowledged.
    acknowledged: AtomicU64,
    /// How many grants were withheld.
    withheld: AtomicU64,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wrong(&self) -> MutexGuard<'_, Vec<String>> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub(super) fn withheld(&self) -> u64 {
        self.withheld.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Clone)]
enum Change {
    Join,
    Leave,
    Claim(String),
    Unclaim(String),
    Acquire(String),
    Release(String),
    Attach(String, u64),
    Detach(String),
}

/// A session as it was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Session {
    /// What its data says.
    version: u64,
    /// Unknown after the end of the tenure that was connected.
    is_active: Option<bool>,
    epoch: u64,
}

/// What was acknowledged to one client.
pub(super) struct Client {
    group: String,
    member: String,
    tenure: Option<String>,
    claims: BTreeSet<String>,
    leases: BTreeMap<String, u64>,
    sessions: BTreeMap<String, Session>,
    version: u64,
    /// What was asked for and not answered: done or not.
    unknown: Option<Change>,
    chance: Chance,
}

impl Client {
    pub(super) fn new(group: &str, nth: u64, seed: u64) -> Self {
        Self {
            group: group.to_owned(),
            member: format!("client-{nth}"),
            tenure: None,
            claims: BTreeSet::new(),
            leases: BTreeMap::new(),
            sessions: BTreeMap::new(),
            version: 0,
            unknown: None,
            chance: Chance(seed),
        }
    }

    /// Changes one thing after the other until `stop`, or until one is not answered.
    pub(super) fn work(&mut self, addr: SocketAddr, shared: &Shared, stop: impl Fn() -> bool) {
        while !stop() && self.unknown.is_none() {
            let change = self.draw();
            self.ask(addr, shared, change);
        }
    }

    fn draw(&mut self) -> Change {
        let chance = &mut self.chance;
        let named = |chance: &mut Chance, what: &str, of: u64| format!("{what}-{}", chance.below(of));
        let own = |name: String, member: &str| format!("{member}-{name}");
        if self.tenure.is_none() || chance.below(60) == 0 {
            return Change::Join;
        }
        match chance.below(40) {
            0 => Change::Leave,
            1..=10 => {
                let key = own(named(chance, "key", KEYS), &self.member);
                if self.claims.contains(&key) {
                    Change::Unclaim(key)
                } else {
                    Change::Claim(key)
                }
            }
            11..=26 => {
                let lease = named(chance, "lease", LEASES);
                if self.leases.contains_key(&lease) {
                    Change::Release(lease)
                } else {
                    Change::Acquire(lease)
                }
            }
            _ => {
                let name = own(named(chance, "session", SESSIONS), &self.member);
                let is_active = self
                    .sessions
                    .get(&name)
                    .is_some_and(|session| session.is_active == Some(true));
                if is_active && chance.below(2) == 0 {
                    Change::Detach(name)
                } else {
                    self.version += 1;
                    Change::Attach(name, self.version)
                }
            }
        }
    }

    fn request(&self, change: &Change) -> (&'static str, String, Value) {
        let tenure = self.tenure.clone().unwrap_or_default();
        let group = format!("/v1/groups/{}", self.group);
        match change {
            Change::Join => (
                "POST",
                format!("{group}/members"),
                json!({"member": self.member, "ttl_ms": TTL_MS}),
            ),
            Change::Leave => ("DELETE", format!("{group}/tenures/{tenure}"), Value::Null),
            Change::Claim(key) => (
                "PUT",
                format!("{group}/registries/r/claims/{key}"),
                json!({ "tenure": tenure }),
            ),
            Change::Unclaim(key) => (
                "DELETE",
                format!("{group}/registries/r/claims/{key}?tenure={tenure}"),
                Value::Null,
            ),
            Change::Acquire(lease) => (
                "POST",
                format!("{group}/leases/{lease}/acquire"),
                json!({ "tenure": tenure }),
            ),
            Change::Release(lease) => (
                "POST",
                format!("{group}/leases/{lease}/release"),
                json!({"tenure": tenure, "token": self.leases[lease]}),
            ),
            Change::Attach(session, version) => (
                "PUT",
                format!("{group}/sessions/{session}"),
                json!({"tenure": tenure, "connection": "c", "data": {"version": version}, "grace_ms": GRACE_MS}),
            ),
            Change::Detach(session) => {
                let epoch = self.sessions[session].epoch;
                (
                    "DELETE",
                    format!("{group}/sessions/{session}/connections/c?tenure={tenure}&epoch={epoch}"),
                    Value::Null,
                )
            }
        }
    }

    fn ask(&mut self, addr: SocketAddr, shared: &Shared, change: Change) {
        self.let_go(shared, &change);
        let (method, path, body) = self.request(&change);
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let before = shared.highest.load(Ordering::SeqCst);
        let headers = [("Content-Type", "application/json")];
        let answer = http::request_with(addr, method, &path, &headers, &body);
        let answer = answer.map(|(status, body)| (status, serde_json::from_str(&body).unwrap_or(Value::Null)));
        match answer {
            Ok((200..=299, answer)) => self.acknowledged(shared, change, &answer, before),
            // Answered, and nothing was done.
            Ok((409, answer)) if answer["code"] == "unsettled" => {
                shared.withheld.fetch_add(1, Ordering::Relaxed);
            }
            Ok((409, answer)) if answer["code"] == "lease_held" => {}
            Ok((500.., _)) | Err(_) => self.unknown = Some(change),
            Ok((status, answer)) => shared.wrong().push(format!(
                "{}: {change:?} was answered with {status} {answer}",
                self.member
            )),
        }
    }

    /// From the moment it asks, it does not trust that it holds any more.
    fn let_go(&self, shared: &Shared, change: &Change) {
        match change {
            Change::Join | Change::Leave => shared.held().retain(|_, holder| *holder != self.member),
            Change::Release(lease) => drop(shared.held().remove(lease)),
            _ => {}
        }
    }

    fn acknowledged(&mut self, shared: &Shared, change: Change, answer: &Value, before: u64) {
        shared.acknowledged.fetch_add(1, Ordering::Relaxed);
        let new = |number: &Value| {
            let number = number.as_u64().unwrap_or_default();
            if number <= before {
                let wrong = format!("{change:?} was answered with the number {number} after {before} was given out");
                shared.wrong().push(wrong);
            }
            shared.highest.fetch_max(number, Ordering::SeqCst);
            number
        };
        match &change {
            Change::Join => {
                new(&answer["term"]);
                self.begin(Some(answer["tenure"].as_str().unwrap_or_default().to_owned()));
            }
            Change::Leave => self.begin(None),
            Change::Claim(key) => drop(self.claims.insert(key.clone())),
            Change::Unclaim(key) => drop(self.claims.remove(key)),
            Change::Acquire(lease) => {
                let token = new(&answer["token"]);
                if let Some(holder) = shared.held().insert(lease.clone(), self.member.clone()) {
                    let wrong = format!("{lease} was granted to {} while {holder} held it", self.member);
                    shared.wrong().push(wrong);
                }
                self.leases.insert(lease.clone(), token);
            }
            Change::Release(lease) => drop(self.leases.remove(lease)),
            Change::Attach(session, version) => {
                let epoch = new(&answer["epoch"]);
                self.sessions.insert(
                    session.clone(),
                    Session {
                        version: *version,
                        is_active: Some(true),
                        epoch,
                    },
                );
            }
            Change::Detach(session) => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.is_active = Some(false);
                }
            }
        }
    }

    /// Another tenure, or none: what was held under the last is released some time later.
    fn begin(&mut self, tenure: Option<String>) {
        self.tenure = tenure;
        self.claims.clear();
        self.leases.clear();
        for session in self.sessions.values_mut() {
            session.is_active = session.is_active.filter(|is_active| !is_active);
        }
    }

    /// Compares what was acknowledged with what the daemon serves, and takes over what was done without an answer. Answers
    /// how many facts it compared.
    pub(super) fn check(&mut self, shared: &Shared, served: &Served) -> u64 {
        let unknown = self.unknown.take();
        let mut wrong = Vec::new();
        let mut facts = 1;
        let tenure = served.members.get(&self.member).cloned();
        if tenure != self.tenure {
            match &unknown {
                Some(Change::Leave) if tenure.is_none() => self.begin(None),
                Some(Change::Join) if term(&tenure) > shared.highest.load(Ordering::SeqCst) => self.begin(tenure),
                _ => wrong.push(format!("the tenure is {tenure:?}, not {:?}", self.tenure)),
            }
        }
        facts += self.check_claims(served, unknown.as_ref(), &mut wrong);
        facts += self.check_leases(shared, served, unknown.as_ref(), &mut wrong);
        facts += self.check_sessions(served, unknown.as_ref(), &mut wrong);
        let told = wrong
            .into_iter()
            .map(|wrong| format!("{}: {wrong}; unanswered: {unknown:?}", self.member));
        shared.wrong().extend(told);
        facts
    }

    fn check_claims(&mut self, served: &Served, unknown: Option<&Change>, wrong: &mut Vec<String>) -> u64 {
        let found = served
            .claims
            .iter()
            .filter(|(_, tenure)| Some(*tenure) == self.tenure.as_ref());
        let found: BTreeSet<_> = found.map(|(key, _)| key.clone()).collect();
        let compared = self.claims.union(&found).count() as u64;
        for key in self.claims.symmetric_difference(&found) {
            let is_open = matches!(unknown, Some(Change::Claim(open) | Change::Unclaim(open)) if open == key);
            if !is_open {
                wrong.push(format!(
                    "{key} was {}",
                    if found.contains(key) { "not claimed" } else { "claimed" }
                ));
            }
        }
        self.claims = found;
        compared
    }

    fn check_leases(
        &mut self,
        shared: &Shared,
        served: &Served,
        unknown: Option<&Change>,
        wrong: &mut Vec<String>,
    ) -> u64 {
        let found = served
            .leases
            .iter()
            .filter(|(_, (tenure, _))| Some(tenure) == self.tenure.as_ref());
        let found: BTreeMap<_, _> = found.map(|(lease, (_, token))| (lease.clone(), *token)).collect();
        let compared = self.leases.keys().chain(found.keys()).collect::<BTreeSet<_>>();
        for lease in &compared {
            let (was, is) = (self.leases.get(*lease), found.get(*lease));
            let is_right = match unknown {
                Some(Change::Release(open)) if open == *lease => is.is_none() || is == was,
                Some(Change::Acquire(open)) if open == *lease => {
                    is.is_none_or(|token| *token > shared.highest.load(Ordering::SeqCst))
                }
                _ => was == is,
            };
            if !is_right {
                wrong.push(format!("{lease} has the token {is:?}, not {was:?}"));
            }
        }
        let count = compared.len() as u64;
        self.leases = found;
        let mut held = shared.held();
        held.retain(|_, holder| *holder != self.member);
        held.extend(self.leases.keys().map(|lease| (lease.clone(), self.member.clone())));
        count
    }

    fn check_sessions(&mut self, served: &Served, unknown: Option<&Change>, wrong: &mut Vec<String>) -> u64 {
        let prefix = format!("{}-", self.member);
        let found = served.sessions.iter().filter(|(name, _)| name.starts_with(&prefix));
        let found: BTreeMap<_, _> = found.map(|(name, session)| (name.clone(), *session)).collect();
        let names: BTreeSet<_> = self.sessions.keys().chain(found.keys()).cloned().collect();
        for name in &names {
            let (was, is) = (self.sessions.get(name), found.get(name));
            let as_before = match (was, is) {
                (None, None) => true,
                (Some(was), Some(is)) => {
                    was.version == is.version
                        && was.epoch == is.epoch
                        && was.is_active.is_none_or(|was| is.is_active == Some(was))
                }
                _ => false,
            };
            let as_asked = match (unknown, is) {
                (Some(Change::Attach(open, version)), Some(is)) => {
                    open == name && is.version == *version && is.is_active == Some(true)
                }
                (Some(Change::Detach(open)), Some(is)) => open == name && is.is_active == Some(false),
                // Its tenure may have ended.
                (Some(Change::Leave | Change::Join), Some(is)) => was.is_some_and(|was| was.version == is.version),
                _ => false,
            };
            if !as_before && !as_asked {
                wrong.push(format!("the session {name} is {is:?}, not {was:?}"));
            }
        }
        self.sessions = found;
        // The end of a tenure may still be on its way to them.
        if self.tenure.is_none() || matches!(unknown, Some(Change::Leave | Change::Join)) {
            self.sessions.values_mut().for_each(|session| session.is_active = None);
        }
        names.len() as u64
    }

    pub(super) fn member(&self) -> &str {
        &self.member
    }
}

fn term(tenure: &Option<String>) -> u64 {
    let term = tenure.as_deref().and_then(|tenure| tenure.rsplit('@').next());
    term.and_then(|term| term.parse().ok()).unwrap_or_default()
}

/// Everything that a daemon serves of a group, without what ended tenures leave behind.
#[derive(Debug, Default)]
pub(super) struct Served {
    members: BTreeMap<String, String>,
    /// Each key with its tenure.
    claims: BTreeMap<String, String>,
    /// Each lease with its tenure and token.
    leases: BTreeMap<String, (String, u64)>,
    sessions: BTreeMap<String, Session>,
}

impl Served {
    /// Reads it. A group that does not exist has nothing.
    pub(super) fn read(addr: SocketAddr, group: &str) -> Self {
        let list = |what: &str, field: &str| {
            let path = format!("/v1/groups/{group}/{what}?limit=1000");
            let (status, body) = http::get(addr, &path).unwrap();
            assert!(matches!(status, 200 | 404), "{path}: {status} {body}");
            let mut page: Value = serde_json::from_str(&body).unwrap();
            assert!(page["next"].is_null(), "{path} has one page");
            match page[field].take() {
                Value::Array(items) => items,
                _ => Vec::new(),
            }
        };
        let text = |item: &Value, field: &str| item[field].as_str().unwrap().to_owned();
        let living = |items: Vec<Value>| items.into_iter().filter(|item| item["alive"] == true);
        let session = |item: &Value| Session {
            version: item["data"]["version"].as_u64().unwrap(),
            is_active: Some(item["state"] == "active"),
            epoch: item["epoch"].as_u64().unwrap(),
        };
        Self {
            members: living(list("members", "members"))
                .map(|item| (text(&item, "member"), text(&item, "tenure")))
                .collect(),
            claims: living(list("registries/r/claims", "claims"))
                .map(|item| (text(&item, "key"), text(&item, "tenure")))
                .collect(),
            leases: living(list("leases", "leases"))
                .map(|item| {
                    (
                        text(&item, "lease"),
                        (text(&item, "tenure"), item["token"].as_u64().unwrap()),
                    )
                })
                .collect(),
            sessions: list("sessions", "sessions")
                .iter()
                .map(|item| (text(item, "session"), session(item)))
                .collect(),
        }
    }

    /// Members that no client is, and what living tenures hold that are no client's.
    pub(super) fn strangers(&self, clients: &[Client]) -> Vec<String> {
        let is_known = |member: &str| clients.iter().any(|client| client.member() == member);
        let members = self.members.keys().filter(|member| !is_known(member)).cloned();
        let tenures: BTreeSet<_> = self.members.values().collect();
        let holders = self
            .claims
            .values()
            .chain(self.leases.values().map(|(tenure, _)| tenure));
        let held = holders
            .filter(|tenure| !tenures.contains(tenure))
            .map(|tenure| format!("what {tenure} holds"));
        let is_owned = |name: &str| {
            clients
                .iter()
                .any(|client| name.starts_with(&format!("{}-", client.member())))
        };
        let sessions = self.sessions.keys().filter(|name| !is_owned(name)).cloned();
        members.chain(held).chain(sessions).collect()
    }
}
