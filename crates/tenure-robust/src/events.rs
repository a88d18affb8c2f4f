//! What the store itself says happened: its log of events, read at the end.

use serde_json::Value;
use tenure::StoreTime;

use crate::client::Api;
use crate::history::{Micros, RunClock};

/// One event.
#[derive(Debug, Clone)]
pub struct Event {
    /// When, on the clock of the run.
    pub at: Micros,
    /// Its type.
    pub kind: String,
    /// The tenure, or nothing.
    pub tenure: String,
    /// The keys that were removed.
    pub keys: Vec<String>,
    /// How many keys it says were removed.
    pub count: u64,
}

/// Reads all events that the checks look at. `None` if the log cannot be read to its end.
pub async fn read_all(api: &mut Api, clock: &RunClock) -> Option<Vec<Event>> {
    let (mut events, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let types = "joined,left,lapsed,superseded,evicted,group_unsettled";
        let page = api
            .get(&format!("events?limit=1000&after={after}&types={types}"))
            .await?;
        let found = page["events"].as_array()?;
        events.extend(found.iter().filter_map(|event| event_of(event, clock)));
        let next = page["next"].as_str().unwrap_or_default().to_owned();
        if next.is_empty() || next == after {
            return Some(events);
        }
        after = next;
    }
}

fn event_of(event: &Value, clock: &RunClock) -> Option<Event> {
    let at: StoreTime = event["at"].as_str()?.parse().ok()?;
    let keys = event["keys"].as_array().into_iter().flatten();
    let counts = event["counts"].as_object().into_iter().flatten();
    Some(Event {
        at: clock.of_wall(at.micros()),
        kind: event["type"].as_str()?.to_owned(),
        tenure: event["tenure"].as_str().unwrap_or_default().to_owned(),
        keys: keys.filter_map(|key| Some(key.as_str()?.to_owned())).collect(),
        count: counts.filter_map(|(_, count)| count.as_u64()).sum(),
    })
}
