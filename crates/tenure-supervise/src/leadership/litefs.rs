//! LiteFS: the node whose mount has no `.primary` is the primary, when nothing speaks against it.
//!
//! The mount gives no reliable notices of changes, so it is looked at four times a second, on a thread of its own: a file
//! system whose server is frozen hangs whoever looks. The event stream of LiteFS makes the judgement better and faster
//! where it can be reached, and is the only way to see that a primary was demoted while there is no other: then there is
//! no `.primary` either. Where it cannot be reached at all, the file alone counts, which is weaker: such a node runs on
//! until a new primary is known.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tokio::sync::watch;

use super::judge::{Judge, Rules, Word};
use super::mount::{self, MountRule, Sight};
use super::{Evidence, Leadership, events, publish};
use crate::http;
use crate::off_thread::OffThread;
use crate::survive;

/// Where LiteFS serves its events by default.
pub const DEFAULT_EVENTS: &str = "http://127.0.0.1:20202/events";

/// The least time between two looks, however often the event stream speaks.
const FLOOR: Duration = Duration::from_millis(20);

/// What the event stream is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Events {
    /// Never ask; the file alone counts.
    Off,
    /// Once heard it has to agree; where it cannot be reached, the file alone counts.
    WhenReachable(String),
    /// Without it nothing is certain.
    Required(String),
}

impl Events {
    fn url(&self) -> Result<Option<Url>> {
        let url = match self {
            Self::Off => return Ok(None),
            Self::WhenReachable(url) | Self::Required(url) => url,
        };
        let bad = |why: &str| {
            let message = format!("the event stream of LiteFS {why}; write {DEFAULT_EVENTS}");
            Error::new(ErrorKind::Misconfigured, message)
        };
        let url = Url::parse(url).map_err(|error| bad("is no URL").because(error))?;
        if url.scheme() != "http" {
            return Err(bad("is not at an http:// URL"));
        }
        Ok(Some(url))
    }
}

/// How a mount of LiteFS is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiteFsSettings {
    /// The mount.
    pub dir: PathBuf,
    /// Which mounts count.
    pub mount: MountRule,
    /// The event stream.
    pub events: Events,
    /// The time between two looks: 250 ms.
    pub poll: Duration,
    /// For how long the file must have been absent: 2 s.
    pub window: Duration,
    /// After this long a look counts as hung: 1 s.
    pub deadline: Duration,
}

impl LiteFsSettings {
    /// The defaults, for a mount.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            mount: MountRule::default(),
            events: Events::WhenReachable(DEFAULT_EVENTS.to_owned()),
            poll: Duration::from_millis(250),
            window: Duration::from_secs(2),
            deadline: Duration::from_secs(1),
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            window: self.window,
            // One look may hang almost to its deadline without anybody having looked away.
            blink: self.poll * 2 + self.deadline,
            grace: Duration::from_secs(1),
            needs_events: matches!(self.events, Events::Required(_)),
        }
    }
}

/// Watches a mount of LiteFS, on the runtime of the caller.
///
/// # Errors
/// `Misconfigured` for a URL of the event stream that cannot be one.
///
/// # Panics
/// Outside of a runtime.
pub fn watch(settings: LiteFsSettings, clock: &Arc<dyn Clock>) -> Result<Leadership> {
    let (hear, word) = watch::channel(Word::Never);
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
        let (deaf, hear, listening) = (hear.clone(), hear, Arc::clone(clock));
        let mourning = Arc::clone(clock);
        tasks.push(survive::spawn(
            "litefs-events",
            Arc::clone(clock),
            move || events::listen(client.clone(), url.clone(), Arc::clone(&listening), hear.clone()),
            move |_| {
                deaf.send_modify(|word| {
                    if let Word::Says(primary) = *word {
                        *word = Word::Lost(primary, mourning.mono());
                    }
                });
            },
        ));
    }
    let first = Evidence::Uncertain("LiteFS was not looked at yet".to_owned());
    let (tell, evidence) = watch::channel(first);
    let (broken, looking) = (tell.clone(), Arc::clone(clock));
    // The thread outlives a panic of the task, so that a stuck one is not joined by another.
    let eyes = Arc::new(OffThread::start("litefs"));
    tasks.push(survive::spawn(
        "litefs",
        Arc::clone(clock),
        move || {
            look_on(
                settings.clone(),
                Arc::clone(&looking),
                Arc::clone(&eyes),
                word.clone(),
                tell.clone(),
            )
        },
        move |why| publish(&broken, Evidence::Uncertain(why)),
    ));
    Ok(Leadership::new(evidence, tasks))
}

async fn look_on(
    settings: LiteFsSettings,
    clock: Arc<dyn Clock>,
    eyes: Arc<OffThread>,
    mut word: watch::Receiver<Word>,
    tell: watch::Sender<Evidence>,
) {
    let mut judge = Judge::new(settings.rules());
    loop {
        let (dir, rule, asked) = (settings.dir.clone(), settings.mount, clock.mono());
        let look = eyes.run(&*clock, settings.deadline, move || mount::look(&dir, rule));
        let sight = look.await.unwrap_or_else(|missed| {
            // The same words for the first missed look and the hundredth: it is one piece of news.
            tracing::debug!(dir = %settings.dir.display(), %missed, "a look at LiteFS is not answered");
            Sight::Unclear(format!("the file system at {} does not answer", settings.dir.display()))
        });
        let heard = *word.borrow_and_update();
        publish(&tell, judge.judge(&sight, heard, asked, clock.mono()));
        tokio::select! {
            () = clock.sleep(settings.poll) => {}
            // Without a stream nobody ever sends, and the sleep alone counts.
            Ok(()) = word.changed() => clock.sleep(FLOOR).await,
        }
    }
}
