//! The thread that starts processes. It lives as long as the program, because the kernel treats the end of the thread
//! that started a child as the death of its parent.

use std::io;
use std::sync::{OnceLock, mpsc};
use std::thread::Builder;

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The queue of the thread. It is never dropped, so the thread never ends.
static JOBS: OnceLock<mpsc::Sender<Job>> = OnceLock::new();

/// Runs `job` on the thread.
///
/// # Errors
/// Those of the job; also when the thread cannot be started.
pub(super) async fn run<T: Send + 'static>(job: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (tell, done) = oneshot::channel();
    jobs()?
        .send(Box::new(move || drop(tell.send(job()))))
        .map_err(|_| no_thread())?;
    done.await.map_err(|_| no_thread())?
}

fn jobs() -> io::Result<&'static mpsc::Sender<Job>> {
    if let Some(jobs) = JOBS.get() {
        return Ok(jobs);
    }
    let (jobs, inbox) = mpsc::channel::<Job>();
    let work = move || inbox.into_iter().for_each(|job| job());
    Builder::new().name("tenure-spawner".to_owned()).spawn(work)?;
    // If two callers race, the loser's thread has no jobs and ends before it starts anything.
    Ok(JOBS.get_or_init(|| jobs))
}

fn no_thread() -> io::Error {
    io::Error::other("the thread that starts processes is gone")
}
