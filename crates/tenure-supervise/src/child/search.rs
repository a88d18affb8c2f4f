//! Searches all processes of the machine for a mark in their environment.
//!
//! Each check reads the memory of another process. If that process is stuck in the kernel (it mapped a file of a file
//! system whose server hangs), its memory may stay locked forever. So checks run on a separate thread. When one hangs,
//! the search continues behind it on another thread and skips that process until the check returns.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::Builder;
use std::time::Duration;

use rustix::process::Pid;

use crate::process::{all, has_variable};

/// A check that takes longer counts as hung.
const CHECK_TIMEOUT: Duration = Duration::from_millis(100);
/// The limit of hung checks. At the limit, the search stops until one returns.
const MAX_HUNG: usize = 64;

type MarkCheck = Arc<dyn Fn(i32) -> bool + Send + Sync>;

/// A repeatable search.
pub(super) struct Search {
    look: MarkCheck,
    tell: Sender<(u64, ScanMessage)>,
    results: Receiver<(u64, ScanMessage)>,
    /// The number of the latest thread. Earlier ones have finished or hang.
    present: Arc<AtomicU64>,
    /// The pids that the hung threads are checking, by thread number.
    hung: BTreeMap<u64, i32>,
}

/// A result from a search thread.
enum ScanMessage {
    /// This process has the mark.
    Marked(i32),
    /// The thread has checked all its processes.
    Finished,
}

impl fmt::Debug for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search")
            .field("hung", &self.hung)
            .finish_non_exhaustive()
    }
}

impl Search {
    /// Searches for `NAME=VALUE` in the environment.
    pub(super) fn of(variable: String) -> Self {
        Self::by(Arc::new(move |pid| has_variable(pid, &variable)))
    }

    /// Searches with a custom check.
    pub(super) fn by(look: MarkCheck) -> Self {
        let (tell, results) = mpsc::channel();
        Self {
            look,
            tell,
            results,
            present: Arc::default(),
            hung: BTreeMap::new(),
        }
    }

    /// Checks every process once and passes each match to `found` immediately. Returns whether no process was skipped.
    /// Waits at most [`CHECK_TIMEOUT`] for one check.
    ///
    /// `O(processes of the machine)`.
    pub(super) fn scan(&mut self, mut found: impl FnMut(Pid)) -> bool {
        while let Ok((number, word)) = self.results.try_recv() {
            self.late(number, &word);
        }
        let mut complete = self.hung.is_empty();
        let mut left: Vec<i32> = all()
            .filter(|pid| !self.hung.values().any(|hung| hung == pid))
            .collect();
        while self.hung.len() < MAX_HUNG {
            let Some(hung) = self.check_all(left.clone(), &mut found) else {
                return complete;
            };
            complete = false;
            let Some(at) = left.iter().position(|pid| *pid == hung) else {
                break;
            };
            left.drain(..=at);
        }
        false
    }

    /// Waits for the pause, or until a hung check returns.
    pub(super) fn wait(&mut self, pause: Duration) {
        if let Ok((number, word)) = self.results.recv_timeout(pause) {
            self.late(number, &word);
        }
    }

    /// Handles a message of a thread that had been given up. The next search checks its process again.
    fn late(&mut self, number: u64, word: &ScanMessage) {
        if matches!(word, ScanMessage::Finished) {
            self.hung.remove(&number);
        }
    }

    /// Checks these processes. Returns the pid whose check hangs; the ones after it were not checked.
    fn check_all(&mut self, pids: Vec<i32>, found: &mut impl FnMut(Pid)) -> Option<i32> {
        let number = self.present.fetch_add(1, Ordering::AcqRel) + 1;
        let at = Arc::new(AtomicI32::new(0));
        let (look, tell) = (Arc::clone(&self.look), self.tell.clone());
        let (present, place) = (Arc::clone(&self.present), Arc::clone(&at));
        let work = move || {
            for pid in pids {
                place.store(pid, Ordering::Release);
                let is_marked = look(pid);
                // A match reported after the timeout is stale: the pid may have been reused.
                if present.load(Ordering::Acquire) != number {
                    break;
                }
                if is_marked && tell.send((number, ScanMessage::Marked(pid))).is_err() {
                    return;
                }
            }
            let _ = tell.send((number, ScanMessage::Finished));
        };
        if let Err(error) = Builder::new().name("tenure-search".to_owned()).spawn(work) {
            tracing::warn!(%error, "cannot start a thread to search for processes of the child");
            // Same as a hung check of the first process that returns immediately.
            return Some(0);
        }
        loop {
            let before = at.load(Ordering::Acquire);
            match self.results.recv_timeout(CHECK_TIMEOUT) {
                Ok((from, ScanMessage::Marked(pid))) if from == number => {
                    Pid::from_raw(pid).into_iter().for_each(&mut *found)
                }
                Ok((from, ScanMessage::Finished)) if from == number => return None,
                Ok((earlier, word)) => self.late(earlier, &word),
                // 0: the thread has not started yet.
                Err(RecvTimeoutError::Timeout) if before == 0 || at.load(Ordering::Acquire) != before => {}
                Err(_) => {
                    self.hung.insert(number, before);
                    return Some(before);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use rustix::process::getpid;

    use super::*;

    /// Hangs at process 1 until released, and finds this process.
    #[test]
    fn hung_check_skips_only_its_process_until_it_returns() {
        let (go, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let own = getpid();
        let mut search = Search::by(Arc::new(move |pid| match pid {
            1 => wait.lock().unwrap().recv().is_ok(),
            pid => pid == own.as_raw_pid(),
        }));
        for _ in 0..2 {
            let mut found = Vec::new();
            assert!(!search.scan(|pid| found.push(pid)), "process 1 was skipped");
            assert_eq!(found, [own]);
        }
        assert_eq!(search.hung.len(), 1, "a hung process is not checked twice");
        drop(go);
        search.wait(Duration::from_secs(20));
        let mut found = Vec::new();
        assert!(search.scan(|pid| found.push(pid)));
        assert_eq!(found, [own]);
    }
}
