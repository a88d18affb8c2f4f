//! One caller of the HTTP API, whose calls are all recorded. Each call but a beat carries a not-after, so a call that was
//! given up can take effect no later than that.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::StoreTime;

use crate::history::{Call, Holder, Micros, Outcome, Recorder, Verb, micros};
use crate::http::{Answer, Client};

/// The group that everything happens in.
pub const GROUP: &str = "robust";
/// The registry of all claims.
pub const REGISTRY: &str = "keys";
/// How long a call waits for its answer.
pub const PATIENCE: Duration = Duration::from_millis(800);

/// A caller.
#[derive(Debug)]
pub struct Api {
    number: usize,
    http: Client,
    recorder: Recorder,
}

impl Api {
    /// A caller of the daemon at an address.
    #[must_use]
    pub fn new(number: usize, addr: SocketAddr, recorder: &Recorder) -> Self {
        Self {
            number,
            http: Client::new(addr),
            recorder: recorder.clone(),
        }
    }

    /// Joins; the tenure, if it is known.
    pub async fn join(&mut self, member: &str, ttl: Duration) -> Option<String> {
        let body = json!({ "member": member, "ttl_ms": u64::try_from(ttl.as_millis()).ok()? });
        let begin = self.recorder.clock.now();
        let answer = self.send("POST", "members", &body, begin, true).await;
        let tenure = match &answer {
            Answer::Said(201, said) => said["tenure"].as_str().map(ToOwned::to_owned),
            _ => None,
        };
        let outcome = outcome_of(answer, |_| Outcome::Done);
        // An unknown join names its member, which it may have superseded.
        let named = tenure.clone().unwrap_or_else(|| format!("{member}@0"));
        self.record(begin, &named, Verb::Join(micros(ttl)), outcome);
        tenure
    }

    /// Makes a call under a tenure.
    pub async fn call(&mut self, tenure: &str, verb: Verb) -> Outcome {
        let under = json!({ "tenure": tenure });
        let claims = format!("registries/{REGISTRY}/claims");
        let (method, path, body) = match &verb {
            Verb::Beat(_) => ("PUT", format!("tenures/{tenure}/beat"), Value::Null),
            Verb::Leave => ("DELETE", format!("tenures/{tenure}"), Value::Null),
            Verb::Acquire(lease) => ("POST", format!("leases/{lease}/acquire"), under),
            Verb::Release(lease, token) => (
                "POST",
                format!("leases/{lease}/release"),
                json!({ "tenure": tenure, "token": token }),
            ),
            Verb::Claim(key, if_absent) => (
                "PUT",
                format!("{claims}/{key}"),
                json!({ "tenure": tenure, "if_absent": if_absent }),
            ),
            Verb::Unclaim(key) => ("DELETE", format!("{claims}/{key}?tenure={tenure}"), Value::Null),
            Verb::ReadLease(lease) => ("GET", format!("leases/{lease}"), Value::Null),
            Verb::ReadClaim(key) => ("GET", format!("{claims}/{key}"), Value::Null),
            Verb::Join(_) | Verb::Trust | Verb::ReleaseAny(_) => return Outcome::Refused("not a call".to_owned()),
        };
        let begin = self.recorder.clock.now();
        let is_bounded = !matches!(verb, Verb::Beat(_));
        let answer = self.send(method, &path, &body, begin, is_bounded).await;
        let outcome = outcome_of(answer, |said| match &verb {
            Verb::Acquire(_) => said["token"].as_u64().map_or(Outcome::Unknown, Outcome::Token),
            Verb::ReadLease(_) | Verb::ReadClaim(_) => Outcome::Reads(Some(Holder {
                tenure: text(said, "tenure"),
                is_alive: said["alive"] == true,
                token: said["token"].as_u64().unwrap_or(0),
            })),
            _ => Outcome::Done,
        });
        self.record(begin, tenure, verb, outcome.clone());
        outcome
    }

    /// An address below the group, unrecorded.
    pub async fn get(&mut self, path: &str) -> Option<Value> {
        let path = format!("/v1/groups/{GROUP}/{path}");
        match self.http.send("GET", &path, "", &Value::Null, 4 * PATIENCE).await {
            Answer::Said(200, said) => Some(said),
            _ => None,
        }
    }

    async fn send(&mut self, method: &str, path: &str, body: &Value, begin: Micros, is_bounded: bool) -> Answer {
        let until = StoreTime::from_micros(self.recorder.clock.to_wall(begin + micros(PATIENCE)));
        let head = match is_bounded && method != "GET" {
            true => format!("Tenure-Not-After: {until}\r\n"),
            false => String::new(),
        };
        let path = format!("/v1/groups/{GROUP}/{path}");
        self.http.send(method, &path, &head, body, PATIENCE).await
    }

    fn record(&self, begin: Micros, tenure: &str, verb: Verb, outcome: Outcome) {
        let end = match outcome {
            Outcome::Unknown => begin + micros(PATIENCE),
            _ => self.recorder.clock.now(),
        };
        self.recorder.add(Call {
            client: self.number,
            begin,
            end,
            tenure: tenure.to_owned(),
            verb,
            outcome,
        });
    }
}

fn text(said: &Value, name: &str) -> String {
    said[name].as_str().unwrap_or_default().to_owned()
}

fn outcome_of(answer: Answer, done: impl FnOnce(&Value) -> Outcome) -> Outcome {
    let (status, said) = match answer {
        Answer::NotSent => return Outcome::Refused("not sent".to_owned()),
        Answer::Lost => return Outcome::Unknown,
        Answer::Said(status, said) => (status, said),
    };
    match (status, text(&said, "code").as_str()) {
        (200..300, _) => done(&said),
        (_, "not_found") => Outcome::Reads(None),
        (_, "tenure_ended") => Outcome::Ended(text(&said, "reason")),
        (_, "lease_held" | "claim_held" | "not_holder" | "not_owner") => Outcome::Taken(text(&said, "tenure")),
        (500.., _) if said["outcome"] != "unchanged" => Outcome::Unknown,
        (_, code) => Outcome::Refused(code.to_owned()),
    }
}
