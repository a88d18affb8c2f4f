//! `--progress-file`: touching the file is progress.

use std::future::pending;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tenure::membership::{JoinOptions, Membership};
use tenure_core::clock::Clock;
use tenure_core::time::parse_duration;
use tenure_supervise::blocking_thread::BlockingThread;

use crate::exit::Usage;

/// The shortest and the longest time between two looks at the file.
const LOOK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The progress that the command must make.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Progress")]
pub(crate) struct ProgressArgs {
    /// The command must touch the progress file at least this often. Otherwise it is stuck, and its tenure ends with the
    /// reason `no_progress`.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "progress_file")]
    progress_within: Option<Duration>,
    /// The file that the command touches to show progress; it reads the path from TENURE_PROGRESS_FILE.
    #[arg(long, value_name = "PATH", requires = "progress_within")]
    progress_file: Option<PathBuf>,
    /// What to do without progress: stop the command and end the tenure when it is gone, or keep the command running without
    /// a tenure until it makes progress again.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnStall::Stop)]
    on_stall: OnStall,
}

/// The reaction to a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnStall {
    Stop,
    Keep,
}

impl ProgressArgs {
    /// Adds the check of the beats, if they are to stop without progress.
    ///
    /// # Errors
    /// `Usage` for a time of zero.
    pub(super) fn apply(&self, options: &mut JoinOptions) -> Result<(), Usage> {
        if self.progress_within.is_some_and(|within| within.is_zero()) {
            return Err(Usage::new(
                "--progress-within is zero; leave it out to check no progress",
            ));
        }
        if let (Some(within), OnStall::Keep) = (self.progress_within, self.on_stall) {
            options.progress_within = Some(within + 2 * step(within));
        }
        Ok(())
    }

    /// The path for the command.
    pub(super) fn file(&self) -> Option<&PathBuf> {
        self.progress_file.as_ref()
    }

    /// The time without progress after which the command is stuck.
    pub(super) fn within(&self) -> Duration {
        self.progress_within.unwrap_or_default()
    }

    /// Completes when the command must be stopped. Until then it reports progress to the membership.
    pub(super) async fn stalled(&self, membership: &Membership, clock: &dyn Clock) {
        let (Some(path), Some(within)) = (self.progress_file.clone(), self.progress_within) else {
            return pending().await;
        };
        // A file system that hangs shows no progress.
        let (thread, step) = (BlockingThread::start("progress"), step(within));
        let look = async || {
            let path = path.clone();
            thread.run(clock, step, move || stamp(&path)).await.ok().flatten()
        };
        let (mut seen, mut idle) = (look().await, Duration::ZERO);
        while self.on_stall == OnStall::Keep || idle <= within + step {
            let before = clock.mono();
            clock.sleep(step).await;
            let now = look().await;
            // While this process did not run, the command may not have run either.
            idle += clock.mono().since(before).min(2 * step);
            if now.is_some() && now != seen {
                seen = now;
                idle = Duration::ZERO;
                membership.progress();
            }
        }
    }
}

/// The time between two looks.
fn step(within: Duration) -> Duration {
    (within / 8).clamp(LOOK.0, LOOK.1)
}

/// What changes when a file is touched, written or replaced.
type Stamp = (u64, i64, i64, u64);

/// `None` for a file that cannot be seen: that is no progress.
fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.ino(), file.mtime(), file.mtime_nsec(), file.size()))
}
