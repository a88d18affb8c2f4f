//! One caller of the HTTP API, whose calls are all recorded. Each call but a beat carries a not-after, so a call that was
//! given up can take effect no later than that.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::StoreTime;

use crate::history::{Call, Grant, Holder, Micros, Outcome, Recorder, Verb, micros};
use crate::http::{Answer, Client};

/// The registry of all claims.
pub const REGISTRY: &str = "keys";
/// How long a call waits for its answer.
pub const PATIENCE: Duration = Duration::from_millis(800);

/// How many may hold a lease with this name.
#[must_use]
pub fn places(lease: &str) -> u64 {
    if lease.starts_with('s') { 2 } else { 1 }
}

/// A caller.
#[derive(Debug)]
pub struct Api {
    number: usize,
    http: Client,
    recorder: Recorder,
    said: Value,
}

impl Api {
    /// A caller of the daemon at an address.
    #[must_use]
    pub fn new(number: usize, addr: SocketAddr, recorder: &Recorder) -> Self {
        Self {
            number,
            http: Client::new(addr),
            recorder: recorder.clone(),
            said: Value::Null,
        }
    }

    /// The body of the last answer.
    #[must_use]
    pub fn said(&self) -> &Value {
        &self.said
    }

    /// Joins; the tenure, if it is known.
    pub async fn join(&mut self, member: &str, ttl: Duration) -> Option<String> {
        let body = json!({ "member": member, "ttl_ms": u64::try_from(ttl.as_millis()).ok()? });
        let begin = self.recorder.clock.now();
        let answer = self.send("POST", "members", &body, begin, PATIENCE).await;
        let tenure = match &answer {
            Answer::Said(201, said) => said["tenure"].as_str().map(ToOwned::to_owned),
            _ => None,
        };
        // An unknown join names its member, which it may have superseded.
        let named = tenure.clone().unwrap_or_else(|| format!("{member}@0"));
        self.finish(begin, &named, Verb::Join(micros(ttl)), answer, PATIENCE);
        tenure
    }

    /// Beats, and names the revision if it is known.
    pub async fn beat(&mut self, tenure: &str, ttl: Duration, revision: Option<u64>) -> Outcome {
        let (begin, path) = (self.recorder.clock.now(), format!("tenures/{tenure}/beat"));
        let body = revision.map_or(Value::Null, |revision| json!({ "revision": revision }));
        let answer = self.send("PUT", &path, &body, begin, PATIENCE).await;
        self.finish(begin, tenure, Verb::Beat(micros(ttl)), answer, PATIENCE)
    }

    /// Beats for several tenures in one request, in the order given. Only the last beat names a revision, and only its outcome
    /// is returned.
    pub async fn beats(&mut self, tenures: &[String], ttl: Duration, revision: Option<u64>) -> Outcome {
        let begin = self.recorder.clock.now();
        let mut beats: Vec<Value> = tenures.iter().map(|tenure| json!({ "tenure": tenure })).collect();
        if let (Some(last), Some(revision)) = (beats.last_mut(), revision) {
            last["revision"] = json!(revision);
        }
        let answer = self
            .send("POST", "beats", &json!({ "beats": beats }), begin, PATIENCE)
            .await;
        let mut outcome = Outcome::Unknown;
        for (n, tenure) in tenures.iter().enumerate() {
            let answer = answer_in_batch(&answer, n);
            self.said = answer.said();
            outcome = self.finish(begin, tenure, Verb::Beat(micros(ttl)), answer, PATIENCE);
        }
        outcome
    }

    /// Makes a call under a tenure.
    pub async fn call(&mut self, tenure: &str, verb: Verb) -> Outcome {
        let claims = format!("registries/{REGISTRY}/claims");
        let (method, path, body) = match &verb {
            Verb::Leave => ("DELETE", format!("tenures/{tenure}"), Value::Null),
            Verb::Acquire(lease, wait) => {
                let body = json!({ "tenure": tenure, "holders": places(lease), "wait_ms": wait / 1_000 });
                ("POST", format!("leases/{lease}/acquire"), body)
            }
            Verb::Release(lease, token) => {
                let body = json!({ "tenure": tenure, "token": token });
                ("POST", format!("leases/{lease}/release"), body)
            }
            Verb::Claim(key, if_absent) => {
                let body = json!({ "tenure": tenure, "if_absent": if_absent });
                ("PUT", format!("{claims}/{key}"), body)
            }
            Verb::Revoke(lease, token) => ("DELETE", format!("leases/{lease}?token={token}"), Value::Null),
            Verb::Unclaim(key) => ("DELETE", format!("{claims}/{key}?tenure={tenure}"), Value::Null),
            Verb::ReadLease(lease) => ("GET", format!("leases/{lease}"), Value::Null),
            Verb::ReadClaim(key) => ("GET", format!("{claims}/{key}"), Value::Null),
            _ => return Outcome::Refused("not a call".to_owned()),
        };
        let patience = match &verb {
            Verb::Acquire(_, wait) => PATIENCE + Duration::from_micros(*wait),
            _ => PATIENCE,
        };
        let begin = self.recorder.clock.now();
        let answer = self.send(method, &path, &body, begin, patience).await;
        self.finish(begin, tenure, verb, answer, patience)
    }

    /// An address below the group, unrecorded.
    pub async fn get(&mut self, path: &str) -> Option<Value> {
        let path = format!("/v1/groups/{}/{path}", self.recorder.group);
        match self.http.send("GET", &path, "", &Value::Null, 4 * PATIENCE).await {
            Answer::Said(200, said) => Some(said),
            _ => None,
        }
    }

    /// The word of an operator that no lease was held.
    pub async fn settle(&mut self) -> bool {
        let path = format!("/v1/groups/{}/settle", self.recorder.group);
        let answer = self.http.send("POST", &path, "", &Value::Null, 4 * PATIENCE).await;
        matches!(answer, Answer::Said(200, said) if said["settled"] != 0)
    }

    /// Records what a member knows without a call.
    pub fn note(&self, tenure: &str, verb: Verb) {
        let now = self.recorder.clock.now();
        self.record((now, now), tenure, verb, Outcome::Done);
    }

    async fn send(&mut self, method: &str, path: &str, body: &Value, begin: Micros, patience: Duration) -> Answer {
        let until = StoreTime::from_micros(self.recorder.clock.to_wall(begin + micros(PATIENCE)));
        let is_bounded = method != "GET" && !path.ends_with("/beat") && path != "beats";
        let head = match is_bounded {
            true => format!("Tenure-Not-After: {until}\r\n"),
            false => String::new(),
        };
        let path = format!("/v1/groups/{}/{path}", self.recorder.group);
        let answer = self.http.send(method, &path, &head, body, patience).await;
        self.said = answer.said();
        answer
    }

    fn finish(&self, begin: Micros, tenure: &str, verb: Verb, answer: Answer, patience: Duration) -> Outcome {
        let outcome = outcome_of(answer, |said| match &verb {
            Verb::Acquire(..) => match said["token"].as_u64() {
                Some(token) => Outcome::Granted(Grant {
                    token,
                    place: said["place"].as_u64().unwrap_or(0),
                    is_kept: said["outcome"] == "kept",
                }),
                None => Outcome::Unknown,
            },
            Verb::ReadLease(_) | Verb::ReadClaim(_) => Outcome::Reads(holders(said)),
            _ => Outcome::Done,
        });
        let end = match outcome {
            Outcome::Unknown => begin + micros(patience),
            _ => self.recorder.clock.now(),
        };
        if let (Verb::Acquire(lease, 1..), Outcome::Unknown) = (&verb, &outcome) {
            // The daemon gives up the wait for a client that is gone, and what was granted to it.
            let release = Verb::ReleaseAny(lease.clone());
            self.record((begin, end), tenure, release, Outcome::Unknown);
        }
        self.record((begin, end), tenure, verb, outcome.clone());
        outcome
    }

    fn record(&self, (begin, end): (Micros, Micros), tenure: &str, verb: Verb, outcome: Outcome) {
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

/// All holders of a lease, or the owner of a key.
fn holders(said: &Value) -> Vec<Holder> {
    let one = std::slice::from_ref(said);
    let all = said["holders"].as_array().map_or(one, Vec::as_slice);
    let holder = |said: &Value| Holder {
        tenure: text(said, "tenure"),
        is_alive: said["alive"] == true,
        token: said["token"].as_u64().unwrap_or(0),
        place: said["place"].as_u64().unwrap_or(0),
    };
    all.iter().map(holder).collect()
}

fn text(said: &Value, name: &str) -> String {
    said[name].as_str().unwrap_or_default().to_owned()
}

/// The answer to one beat of a batch, as if it had been sent alone.
fn answer_in_batch(answer: &Answer, n: usize) -> Answer {
    let Answer::Said(200, said) = answer else {
        return answer.clone();
    };
    let result = &said["results"][n];
    match text(result, "status").as_str() {
        "renewed" => Answer::Said(200, result.clone()),
        "ended" => Answer::Said(410, json!({ "code": "tenure_ended", "reason": result["reason"] })),
        "unknown" => Answer::Said(410, json!({ "code": "tenure_ended", "reason": "unknown" })),
        "refused" => Answer::Said(503, json!({ "code": "store_unavailable", "outcome": "unchanged" })),
        _ => Answer::Lost,
    }
}

fn outcome_of(answer: Answer, done: impl FnOnce(&Value) -> Outcome) -> Outcome {
    let (status, said) = match answer {
        Answer::NotSent => return Outcome::Refused("not sent".to_owned()),
        Answer::Lost => return Outcome::Unknown,
        Answer::Said(status, said) => (status, said),
    };
    match (status, text(&said, "code").as_str()) {
        (200..300, _) => done(&said),
        (_, "not_found") => Outcome::Reads(Vec::new()),
        (_, "tenure_ended") => Outcome::Ended(text(&said, "reason")),
        (_, "lease_held" | "claim_held" | "not_holder" | "not_owner") => Outcome::Taken(text(&said, "tenure")),
        (500.., _) if said["outcome"] != "unchanged" => Outcome::Unknown,
        (_, code) => Outcome::Refused(code.to_owned()),
    }
}
