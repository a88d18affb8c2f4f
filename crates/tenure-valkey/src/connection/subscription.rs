//! A subscription to one channel, on connections of its own beside the main ones.
//!
//! Each link has a task that subscribes on the server of the link's current connection, and again on the next one when
//! that connection ends. Messages that were published in between are lost; the reader learns that some may be, and asks
//! for the state instead.
//!
//! In a cluster the task of every primary subscribes: a message comes from the node that published it, so that it does
//! not depend on the links between the nodes, and from the others again. (`SPUBLISH` would have to follow the slots, and
//! loses messages while they move.)

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use tenure_core::clock::within;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::link::{Link, LinkContext};
use super::live::{self, LiveConnection};
use super::supervisor::{backoff, full_jitter};
use super::wire;
use super::{Connection, Links};

/// How many unread messages are kept. More are dropped, which the reader learns.
const MAX_UNREAD: usize = 20_000;
/// How often the primaries of a cluster are looked up for new ones.
const FOLLOW: Duration = Duration::from_secs(1);

/// A subscription. Dropping it ends its connections.
pub(crate) struct Subscription {
    connection: Connection,
    channel: String,
    feed: Arc<Feed>,
    tasks: Mutex<Vec<(Link, AbortOnDrop)>>,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the tasks pass to the reader.
#[derive(Default)]
struct Feed {
    inbox: Mutex<Inbox>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Inbox {
    messages: VecDeque<Vec<u8>>,
    /// Whether messages may have been lost since the last reading.
    missed: bool,
    /// Why the user may not subscribe.
    denied: Option<String>,
    /// How many tasks have finished their first attempt.
    tried: usize,
}

impl Feed {
    fn change(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut lock(&self.inbox));
        self.changed.send_modify(|number| *number += 1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subscription {
    /// Subscribes in the background.
    pub(crate) fn start(connection: &Connection, channel: String) -> Self {
        let subscription = Self {
            connection: connection.clone(),
            channel,
            feed: Arc::default(),
            tasks: Mutex::default(),
        };
        subscription.follow();
        subscription
    }

    /// Starts a task for each link without one. Returns the number of links.
    fn follow(&self) -> usize {
        let links = match &self.connection.links {
            Links::One(link) => vec![link.clone()],
            Links::Cluster(cluster) => cluster.primaries(),
        };
        let mut tasks = lock(&self.tasks);
        tasks.retain(|(link, _)| links.iter().any(|other| other.is_same(link)));
        for link in &links {
            if tasks.iter().any(|(other, _)| other.is_same(link)) {
                continue;
            }
            let work = keep_subscribed(link.context(), self.channel.clone(), Arc::clone(&self.feed));
            let task = link.context().runtime.spawn(work).abort_handle();
            tasks.push((link.clone(), AbortOnDrop(task)));
        }
        links.len()
    }

    /// Waits until each link was tried once, so that a message published after that is not lost; at most the connect
    /// timeout.
    pub(crate) async fn first_try(&self) {
        let (links, mut changed) = (self.follow(), self.feed.changed.subscribe());
        let tried = async { while lock(&self.feed.inbox).tried < links && changed.changed().await.is_ok() {} };
        let bound = self.connection.options().connect_timeout;
        let _ = within(&**self.connection.clock(), bound, tried).await;
    }

    /// Waits for messages, at most this long.
    ///
    /// # Errors
    /// `Unavailable` when messages may have been lost since the last reading, `Denied` when the user may not subscribe,
    /// after a pause.
    pub(crate) async fn next(&self, patience: Duration, pause: Duration) -> Result<Vec<Vec<u8>>> {
        let (clock, mut changed) = (self.connection.clock(), self.feed.changed.subscribe());
        let until = clock.mono() + patience;
        loop {
            self.follow();
            if let Some(found) = self.take(pause).await {
                return found;
            }
            let left = until.since(clock.mono());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            // A timeout only looks for new primaries.
            let _ = within(&**clock, left.min(FOLLOW), changed.changed()).await;
        }
    }

    async fn take(&self, pause: Duration) -> Option<Result<Vec<Vec<u8>>>> {
        let denied = {
            let mut inbox = lock(&self.feed.inbox);
            if std::mem::take(&mut inbox.missed) {
                inbox.messages.clear();
                let message = "the subscription was interrupted; messages may have been lost";
                return Some(Err(
                    Error::unavailable(message, Outcome::Unchanged).with_retry_after(Duration::ZERO)
                ));
            }
            if !inbox.messages.is_empty() {
                return Some(Ok(std::mem::take(&mut inbox.messages).into()));
            }
            inbox.denied.clone()?
        };
        self.connection.clock().sleep(pause).await;
        Some(Err(
            Error::new(ErrorKind::Denied, denied).with_retry_after(Duration::ZERO)
        ))
    }
}

/// Keeps one link subscribed.
async fn keep_subscribed(context: Arc<LinkContext>, channel: String, feed: Arc<Feed>) {
    let (mut failures, mut is_first) = (0u32, true);
    while !context.is_closed() {
        match subscribe(&context, &channel).await {
            Ok((live, sink, stream)) => {
                failures = 0;
                feed.change(|inbox| {
                    inbox.denied = None;
                    inbox.missed |= !is_first;
                    inbox.tried += usize::from(is_first);
                });
                is_first = false;
                let why = tokio::select! {
                    why = live.until_ended() => why,
                    () = pump(stream, &feed) => "the connection broke".to_owned(),
                    why = check_when_idle(&context, sink, &channel) => why,
                };
                tracing::debug!(channel, why, "a subscription ended; subscribing again");
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tell_failure(&context, &channel, &error, failures);
                feed.change(|inbox| {
                    inbox.tried += usize::from(is_first);
                    if error.kind() == ErrorKind::Denied {
                        inbox.denied = Some(error.chain());
                    }
                });
                is_first = false;
            }
        }
        context
            .clock
            .sleep(full_jitter(&*context.clock, backoff(failures)))
            .await;
    }
}

fn tell_failure(context: &LinkContext, channel: &str, error: &Error, failures: u32) {
    if failures == 1 && error.kind() == ErrorKind::Denied {
        tracing::warn!(place = context.address.place(), channel, error = %error.chain(), "the store denies a subscription");
    } else {
        tracing::debug!(place = context.address.place(), channel, error = %error.chain(), "no subscription");
    }
}

/// Passes messages on until the connection ends.
async fn pump(mut stream: PubSubStream, feed: &Feed) {
    while let Some(message) = stream.next().await {
        feed.change(|inbox| {
            if inbox.messages.len() < MAX_UNREAD {
                inbox.messages.push_back(message.get_payload_bytes().to_vec());
            } else {
                inbox.missed = true;
            }
        });
    }
}

/// Subscribes again at each ping interval, which changes nothing, to notice a connection that is silent because it is
/// broken. Returns why it ended.
async fn check_when_idle(context: &LinkContext, mut sink: PubSubSink, channel: &str) -> String {
    loop {
        context.clock.sleep(context.options.ping_interval).await;
        let bound = context.options.request_timeout;
        match within(&*context.clock, bound, sink.subscribe(channel)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return error.to_string(),
            None => return "the server did not answer in time".to_owned(),
        }
    }
}

type Subscribed = (Arc<LiveConnection>, PubSubSink, PubSubStream);

async fn subscribe(context: &Arc<LinkContext>, channel: &str) -> Result<Subscribed> {
    let live = context.live()?;
    let work = async {
        let (handshake, tls) = (context.address.handshake(), context.address.tls());
        let opened = wire::open_subscriber(&context.runtime, live.at(), handshake, tls).await?;
        let (mut sink, stream) = opened.split();
        match sink.subscribe(channel).await {
            Ok(()) => Ok((sink, stream)),
            Err(error) => Err(refused(channel, live::into_error(live::failure_of(&error)))),
        }
    };
    let bound = context.options.connect_timeout;
    let done = within(&*context.clock, bound, work).await;
    let (sink, stream) = done.unwrap_or_else(|| {
        let message = format!("no subscription within {}", tenure_core::time::show_duration(bound));
        Err(Error::unavailable(message, Outcome::Unchanged))
    })?;
    Ok((live, sink, stream))
}

fn refused(channel: &str, error: Error) -> Error {
    if error.kind() != ErrorKind::Denied {
        return error;
    }
    let message = format!(
        "the user may not subscribe to {channel}, so a freed lease reaches its waiter up to a second late; give it the \
         rules &tenure:turns:* +subscribe +publish (docs/stores.md has them all)"
    );
    Error::new(ErrorKind::Denied, message).because(error.chain())
}
