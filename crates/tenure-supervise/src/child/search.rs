//! The search for everything that carries a mark, wherever it hides: a look at every process there is.
//!
//! A look reads the memory of another process, and one that is stuck in the kernel (it has mapped a file of a file system
//! whose server hangs) may hold that locked for ever. So the looks are made on a thread of their own; one that hangs is
//! left alone, the search goes on behind it on another thread, and until it comes back that process is passed over.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::Builder;
use std::time::Duration;

use rustix::process::Pid;

use crate::process::{all, has_variable};

/// A look that takes longer hangs.
const PATIENCE: Duration = Duration::from_millis(100);
/// So many looks may hang at once; then nobody else is looked at until one of them comes back.
const MOST: usize = 64;

type Look = Arc<dyn Fn(i32) -> bool + Send + Sync>;

/// A search that can be made again and again.
pub(super) struct Search {
    look: Look,
    tell: Sender<(u64, Word)>,
    heard: Receiver<(u64, Word)>,
    /// The number of the latest thread; those before it are done, or hang.
    present: Arc<AtomicU64>,
    /// Whom the threads that hang look at, by their numbers.
    hung: BTreeMap<u64, i32>,
}

/// What a thread says.
enum Word {
    /// This one has it.
    Marked(i32),
    /// There is nobody left to look at.
    Over,
}

impl fmt::Debug for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search")
            .field("hung", &self.hung)
            .finish_non_exhaustive()
    }
}

impl Search {
    /// For those with `NAME=VALUE` in their environment.
    pub(super) fn of(variable: String) -> Self {
        Self::by(Arc::new(move |pid| has_variable(pid, &variable)))
    }

    /// For those of whom `look` says so.
    pub(super) fn by(look: Look) -> Self {
        let (tell, heard) = mpsc::channel();
        Self {
            look,
            tell,
            heard,
            present: Arc::default(),
            hung: BTreeMap::new(),
        }
    }

    /// Looks at everybody once, and tells whom it has found as soon as it has. Answers whether nobody was passed over.
    /// Never waits longer than [`PATIENCE`] for one look.
    ///
    /// `O(processes of the machine)`.
    pub(super) fn look_around(&mut self, mut found: impl FnMut(Pid)) -> bool {
        while let Ok((number, word)) = self.heard.try_recv() {
            self.late(number, &word);
        }
        let mut complete = self.hung.is_empty();
        let mut left: Vec<i32> = all()
            .filter(|pid| !self.hung.values().any(|hung| hung == pid))
            .collect();
        while self.hung.len() < MOST {
            let Some(hung) = self.look_at(left.clone(), &mut found) else {
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

    /// Waits, or until a look that hung comes back.
    pub(super) fn rest(&mut self, pause: Duration) {
        if let Ok((number, word)) = self.heard.recv_timeout(pause) {
            self.late(number, &word);
        }
    }

    /// A thread that was given up on has something to say. Whom it looked at is looked at again by the next search.
    fn late(&mut self, number: u64, word: &Word) {
        if matches!(word, Word::Over) {
            self.hung.remove(&number);
        }
    }

    /// Looks at these. Answers at whom the look hangs; those behind that one were not looked at.
    fn look_at(&mut self, pids: Vec<i32>, found: &mut impl FnMut(Pid)) -> Option<i32> {
        let number = self.present.fetch_add(1, Ordering::AcqRel) + 1;
        let at = Arc::new(AtomicI32::new(0));
        let (look, tell) = (Arc::clone(&self.look), self.tell.clone());
        let (present, place) = (Arc::clone(&self.present), Arc::clone(&at));
        let work = move || {
            for pid in pids {
                place.store(pid, Ordering::Release);
                let is_marked = look(pid);
                // What it says after it was given up is about long ago: the number may be another's by now.
                if present.load(Ordering::Acquire) != number {
                    break;
                }
                if is_marked && tell.send((number, Word::Marked(pid))).is_err() {
                    return;
                }
            }
            let _ = tell.send((number, Word::Over));
        };
        if let Err(error) = Builder::new().name("tenure-search".to_owned()).spawn(work) {
            tracing::warn!(%error, "no thread to look for what the child has started");
            // As good as a look that hangs at the first of them, and comes back at once.
            return Some(0);
        }
        loop {
            let before = at.load(Ordering::Acquire);
            match self.heard.recv_timeout(PATIENCE) {
                Ok((from, Word::Marked(pid))) if from == number => Pid::from_raw(pid).into_iter().for_each(&mut *found),
                Ok((from, Word::Over)) if from == number => return None,
                Ok((earlier, word)) => self.late(earlier, &word),
                // 0: it has not begun.
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

    /// Hangs at process 1 until it is let go, and finds this process.
    #[test]
    fn a_look_that_hangs_hides_nobody_and_is_waited_for() {
        let (go, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let own = getpid();
        let mut search = Search::by(Arc::new(move |pid| match pid {
            1 => wait.lock().unwrap().recv().is_ok(),
            pid => pid == own.as_raw_pid(),
        }));
        for _ in 0..2 {
            let mut found = Vec::new();
            assert!(!search.look_around(|pid| found.push(pid)), "process 1 was passed over");
            assert_eq!(found, [own]);
        }
        assert_eq!(search.hung.len(), 1, "it is not asked again while it hangs");
        drop(go);
        search.rest(Duration::from_secs(20));
        let mut found = Vec::new();
        assert!(search.look_around(|pid| found.push(pid)));
        assert_eq!(found, [own]);
    }
}
