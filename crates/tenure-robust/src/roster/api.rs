//! One caller of the roster's routes, whose calls are all recorded.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::StoreTime;

use super::{Act, Deed, Deeds, Done, ROSTER, Reply};
use crate::client::PATIENCE;
use crate::history::{RunClock, micros};
use crate::http::{Answer, Client};

/// A caller.
#[derive(Debug)]
pub struct RosterApi {
    http: Client,
    clock: RunClock,
    deeds: Deeds,
}

impl RosterApi {
    /// A caller of the daemon at an address.
    #[must_use]
    pub fn new(addr: SocketAddr, clock: RunClock, deeds: &Deeds) -> Self {
        Self {
            http: Client::new(addr),
            clock,
            deeds: deeds.clone(),
        }
    }

    /// Makes a call about a provider or an engagement.
    pub async fn call(&mut self, act: Act, name: &str) -> Deed {
        let (method, path, body) = match act {
            Act::Online => ("POST", format!("providers/{name}/online"), Value::Null),
            Act::Offline => ("POST", format!("providers/{name}/offline"), Value::Null),
            Act::Heartbeat => ("POST", format!("providers/{name}/heartbeat"), Value::Null),
            Act::Activate => ("POST", format!("providers/{name}/activate"), Value::Null),
            Act::Deactivate => ("POST", format!("providers/{name}/deactivate"), Value::Null),
            Act::Reserve => ("POST", "reserve".to_owned(), json!({ "engagement": name })),
            Act::End => ("PATCH", format!("engagements/{name}"), json!({ "status": "ended" })),
        };
        let begin = self.clock.now();
        let until = StoreTime::from_micros(self.clock.to_wall(begin + micros(PATIENCE)));
        let head = match act {
            Act::Heartbeat => String::new(),
            _ => format!("Tenure-Not-After: {until}\r\n"),
        };
        let answer = self.send(method, &path, &head, &body, PATIENCE).await;
        let text = |said: &Value, field: &str| said[field].as_str().unwrap_or_default().to_owned();
        let is_engagement = matches!(act, Act::Reserve | Act::End);
        let (mut provider, engagement) = match is_engagement {
            true => (String::new(), name.to_owned()),
            false => (name.to_owned(), String::new()),
        };
        let reply = match &answer {
            Answer::Said(200..300, said) => {
                if is_engagement {
                    provider = text(said, "provider");
                }
                Reply::Done(Done {
                    is_changed: said["changed"] == true,
                    version: said["version"].as_u64().unwrap_or(0),
                    is_mirrored: said["mirrored"] == true || said["recorded"] == "mirror",
                })
            }
            Answer::Said(500.., said) if said["outcome"] != "unchanged" => Reply::Unknown,
            Answer::Said(_, said) => Reply::Refused(text(said, "code")),
            Answer::NotSent => Reply::Refused("not sent".to_owned()),
            Answer::Lost => Reply::Unknown,
        };
        let end = match reply {
            Reply::Unknown => begin + micros(PATIENCE),
            _ => self.clock.now(),
        };
        let deed = Deed {
            begin,
            end,
            act,
            provider,
            engagement,
            reply,
        };
        self.deeds.add(deed.clone());
        deed
    }

    /// A request below the roster, unrecorded.
    pub async fn ask(&mut self, method: &str, path: &str, body: &Value) -> Option<Value> {
        match self.send(method, path, "", body, 4 * PATIENCE).await {
            Answer::Said(200..300, said) => Some(said),
            _ => None,
        }
    }

    async fn send(&mut self, method: &str, path: &str, head: &str, body: &Value, within: Duration) -> Answer {
        let path = match path {
            "" => format!("/v1/rosters/{ROSTER}"),
            _ => format!("/v1/rosters/{ROSTER}/{path}"),
        };
        self.http.send(method, &path, head, body, within).await
    }
}
