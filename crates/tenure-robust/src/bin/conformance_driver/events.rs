//! Operations on events.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure::wire::EventAnswer;
use tenure::{Event, EventId, EventQuery, FeedItem};

use crate::answer::{Answered, Command, Refusal};
use crate::{Driver, locked, write};

impl Driver {
    pub(crate) async fn events(&self, command: &Command) -> Answered {
        let limit = command.number("limit").and_then(|limit| u32::try_from(limit).ok());
        let query = EventQuery {
            after: after(command)?,
            limit: limit.unwrap_or(100),
            ..EventQuery::default()
        };
        let page = self.group(command)?.events(&query).await?;
        let items: Vec<Value> = page.events.into_iter().map(item).collect();
        Ok(json!({ "items": items, "next": page.last.to_string(), "missed": page.missed }))
    }

    pub(crate) fn follow(self: &Arc<Self>, command: &Command) -> Answered {
        let mut feed = self.group(command)?.follow(after(command)?);
        let follow = self.name("f");
        let name = follow.clone();
        let task = tokio::spawn(async move {
            loop {
                match feed.next().await {
                    Ok(FeedItem::Event(event)) => {
                        write(&json!({ "event": "item", "follow": name, "item": item(event) }));
                    }
                    Ok(FeedItem::Gap) => write(&json!({ "event": "gap", "follow": name })),
                    Err(error) => return eprintln!("{name}: {}", error.chain()),
                }
            }
        });
        locked(&self.followers).insert(follow.clone(), task.abort_handle());
        Ok(json!({ "follow": follow }))
    }
}

fn item(event: Event) -> Value {
    json!(EventAnswer::from(event))
}

/// The position in a command, a number or its text.
fn after(command: &Command) -> Result<Option<EventId>, Refusal> {
    let number = match (command.number("after"), command.optional("after")) {
        (Some(number), _) => Some(number),
        (None, None | Some("")) => None,
        (None, Some(text)) => {
            let read = text
                .parse()
                .map_err(|_| Refusal::bad_command("after is not a number"))?;
            Some(read)
        }
    };
    Ok(number.filter(|number| *number != 0).map(EventId))
}
