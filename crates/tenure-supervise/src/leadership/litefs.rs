//! LiteFS: the node whose mount has no `.primary` is the primary, unless other evidence contradicts it.
//!
//! The mount reports no reliable change events, so it is polled four times a second, on a separate thread because a
//! frozen FUSE server blocks its callers. The event stream of LiteFS makes the result faster and more reliable. Only
//! the stream shows that a primary was demoted while no other primary exists, because `.primary` is absent then as
//! well. Without a stream, the file alone counts: such a node runs on until a new primary is known.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tokio::sync::watch;

use super::evaluator::{Evaluator, Rules, StreamState};
use super::mount::{self, MountRule, MountState};
use super::{Evidence, Leadership, events, publish};
use crate::blocking_thread::BlockingThread;
use crate::http;
use crate::restart;

/// The default URL of the LiteFS event stream.
pub const DEFAULT_EVENTS: &str = "http://127.0.0.1:20202/events";

/// The shortest interval between two polls, even if the event stream changes more often.
const FLOOR: Duration = Duration::from_millis(20);

/// How the event stream is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventStream {
    /// Not used; the file alone counts.
    Off,
    /// Once connected, it must agree. While it cannot be reached, the file alone counts.
    WhenReachable(String),
    /// Without it the evidence is uncertain.
    Required(String),
}

impl EventStream {
    fn url(&self) -> Result<Option<Url>> {
        let url = match self {
            Self::Off => return Ok(None),
            Self::WhenReachable(url) | Self::Required(url) => url,
        };
        let bad = |why: &str| {
            let message = format!("the event stream of LiteFS {why}; write {DEFAULT_EVENTS}");
            Error::new(ErrorKind::Misconfigured, message)
        };
        let url = Url::parse(url).map_err(|error| bad("is not a URL").because(error))?;
        if url.scheme() != "http" {
            return Err(bad("is not at an http:// URL"));
        }
        Ok(Some(url))
    }
}

/// How a LiteFS mount is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiteFsSettings {
    /// The mount point.
    pub dir: PathBuf,
    /// Which mounts count as LiteFS.
    pub mount: MountRule,
    /// The event stream.
    pub events: EventStream,
    /// The poll interval: 250 ms.
    pub poll: Duration,
    /// How long the file must have been absent: 2 s.
    pub window: Duration,
    /// The timeout of one poll: 1 s.
    pub deadline: Duration,
}

impl LiteFsSettings {
    /// The defaults for a mount.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            mount: MountRule::default(),
            events: EventStream::WhenReachable(DEFAULT_EVENTS.to_owned()),
            poll: Duration::from_millis(250),
            window: Duration::from_secs(2),
            deadline: Duration::from_secs(1),
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            window: self.window,
            // One poll may take almost its timeout without a gap in the observation.
            max_gap: self.poll * 2 + self.deadline,
            grace: Duration::from_secs(1),
            needs_events: matches!(self.events, EventStream::Required(_)),
        }
    }
}

/// Watches a LiteFS mount, on the caller's runtime.
///
/// # Errors
/// `Misconfigured` for an invalid URL of the event stream.
///
/// # Panics
/// Outside of a runtime.
pub fn watch(settings: LiteFsSettings, clock: &Arc<dyn Clock>) -> Result<Leadership> {
    let (hear, word) = watch::channel(StreamState::Never);
    let mut tasks = Vec::new();
    if let Some(url) = settings.events.url()? {
        let client = http::client(None)
            .and_then(|client| {
                let client = client.connect_timeout(Duration::from_secs(1)).build();
                client.map_err(|error| error.to_string())
            })
            .map_err(|why| {
                Error::new(
                    ErrorKind::Misconfigured,
                    format!("the HTTP client cannot be set up: {why}"),
                )
            })?;
        let (lost, hear, listening) = (hear.clone(), hear, Arc::clone(clock));
        let lost_clock = Arc::clone(clock);
        tasks.push(restart::spawn(
            "litefs-events",
            Arc::clone(clock),
            move || events::listen(client.clone(), url.clone(), Arc::clone(&listening), hear.clone()),
            move |_| {
                lost.send_modify(|word| {
                    if let StreamState::Connected(primary) = *word {
                        *word = StreamState::Disconnected(primary, lost_clock.mono());
                    }
                });
            },
        ));
    }
    let first = Evidence::Uncertain("LiteFS was not polled yet".to_owned());
    let (tell, evidence) = watch::channel(first);
    let (broken, looking) = (tell.clone(), Arc::clone(clock));
    // The thread survives a panic of the task, so a stuck thread is not replaced by a second one.
    let thread = Arc::new(BlockingThread::start("litefs"));
    tasks.push(restart::spawn(
        "litefs",
        Arc::clone(clock),
        move || {
            poll_mount(
                settings.clone(),
                Arc::clone(&looking),
                Arc::clone(&thread),
                word.clone(),
                tell.clone(),
            )
        },
        move |why| publish(&broken, Evidence::Uncertain(why)),
    ));
    Ok(Leadership::new(evidence, tasks))
}

async fn poll_mount(
    settings: LiteFsSettings,
    clock: Arc<dyn Clock>,
    thread: Arc<BlockingThread>,
    mut word: watch::Receiver<StreamState>,
    tell: watch::Sender<Evidence>,
) {
    let mut evaluator = Evaluator::new(settings.rules());
    loop {
        let (dir, rule, asked) = (settings.dir.clone(), settings.mount, clock.mono());
        let look = thread.run(&*clock, settings.deadline, move || mount::look(&dir, rule));
        let state = look.await.unwrap_or_else(|missed| {
            // The same text for every missed poll, so that it is published once.
            tracing::debug!(dir = %settings.dir.display(), %missed, "a poll of LiteFS failed");
            MountState::Unclear(format!(
                "the file system at {} does not respond",
                settings.dir.display()
            ))
        });
        let heard = *word.borrow_and_update();
        publish(&tell, evaluator.evaluate(&state, heard, asked, clock.mono()));
        tokio::select! {
            () = clock.sleep(settings.poll) => {}
            // Without a stream the sender never changes the state, and only the sleep completes.
            Ok(()) = word.changed() => clock.sleep(FLOOR).await,
        }
    }
}
