//! A log writer that never blocks: a thread writes the lines to stderr, and lines that do not fit into its buffer are lost.
//!
//! A stopped terminal or a stalled log shipper blocks every write to stderr. A supervisor that must stop its command in time
//! cannot wait for that.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tenure_supervise::terminal::allow_output_in_background;

use super::LogFormat;

/// So many bytes wait for a reader.
const ROOM: usize = 1 << 20;

/// The buffer of lines. Clones share state. Only [`Lines::flush`] blocks.
#[derive(Debug, Clone)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    format: LogFormat,
    waiting: Mutex<Waiting>,
    /// There is a line, or there is none any more.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The lines lost since the last one that was written.
    lost: u64,
    /// One is being written.
    writes: bool,
}

impl Lines {
    /// Starts the thread that writes them to `out`. It ends with the process.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn to(out: impl Write + Send + 'static, format: LogFormat) -> io::Result<Self> {
        let lines = Self(Arc::new(Shared {
            format,
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }));
        let its = Arc::clone(&lines.0);
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            // A wrapped command has the terminal, which stops a process that writes in the background (`stty tostop`).
            allow_output_in_background();
            its.write_to(out);
        })?;
        Ok(lines)
    }

    /// Puts one down, with its end.
    pub(super) fn put(&self, line: &[u8]) {
        let mut waiting = self.0.waiting();
        if waiting.lost > 0 && waiting.has_room(line.len()) {
            let lost = std::mem::take(&mut waiting.lost);
            let note = match self.0.format {
                LogFormat::Text => format!("tenure: {lost} log lines lost: stderr was not read"),
                LogFormat::Json => {
                    json!({"level": "WARN", "message": "log lines lost: stderr was not read", "lines": lost})
                        .to_string()
                }
            };
            waiting.add(format!("{note}\n").as_bytes());
        }
        if waiting.has_room(line.len()) {
            waiting.add(line);
            drop(waiting);
            self.0.changed.notify_all();
        } else {
            waiting.lost += 1;
        }
    }

    /// Puts down a message for people.
    pub(super) fn say(&self, message: impl Display) {
        self.say_at("INFO", message);
    }

    /// The same with a level, which only JSON shows.
    pub(super) fn say_at(&self, level: &str, message: impl Display) {
        let line = match self.0.format {
            LogFormat::Text => format!("tenure: {message}"),
            LogFormat::Json => json!({"level": level, "message": message.to_string()}).to_string(),
        };
        self.put(format!("{line}\n").as_bytes());
    }

    /// Waits until all of them are written, and no longer than `bound`.
    pub(super) fn flush(&self, bound: Duration) {
        let waits = |waiting: &mut Waiting| waiting.writes || !waiting.lines.is_empty();
        // Later lines are lost without a note.
        drop(self.0.changed.wait_timeout_while(self.0.waiting(), bound, waits));
    }
}

impl Waiting {
    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= ROOM
    }

    fn add(&mut self, line: &[u8]) {
        self.bytes += line.len();
        self.lines.push_back(line.to_vec());
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, mut out: impl Write) {
        let mut waiting = self.waiting();
        loop {
            let Some(line) = waiting.lines.pop_front() else {
                self.changed.notify_all();
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            waiting.bytes -= line.len();
            waiting.writes = true;
            drop(waiting);
            // A reader that went away must not take us with it.
            let _ = out.write_all(&line);
            waiting = self.waiting();
            waiting.writes = false;
        }
    }
}

/// Every write is one line, as those of `tracing` are.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, pipe};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn start() -> (Lines, PipeReader) {
        let (reader, writer) = pipe().unwrap();
        (Lines::to(writer, LogFormat::Text).unwrap(), reader)
    }

    fn read(reader: &mut PipeReader, wanted: &str) -> String {
        let mut text = vec![0; wanted.len()];
        reader.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn all_of_it_is_written_in_order_before_a_flush_ends() {
        let (lines, mut reader) = start();
        lines.put(b"one\n");
        lines.say("two");
        lines.flush(LONG);
        let wanted = "one\ntenure: two\n";
        assert_eq!(read(&mut reader, wanted), wanted);
    }

    /// Blocks at its first write until it is released.
    struct Still {
        begun: Sender<()>,
        go: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Still {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let _ = self.begun.send(());
            let _ = self.go.recv();
            self.written.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_reader_costs_lines_and_no_time() {
        let (begun, has_begun) = channel();
        let (let_go, go) = channel::<()>();
        let written = Arc::new(Mutex::new(Vec::new()));
        let still = Still {
            begun,
            go,
            written: Arc::clone(&written),
        };
        let lines = Lines::to(still, LogFormat::Text).unwrap();
        let line = [&[b'.'; 65_535][..], b"\n"].concat();
        lines.put(&line);
        has_begun.recv().unwrap();
        // While one is being written there is room for sixteen.
        for _ in 0..20 {
            lines.put(&line);
        }
        lines.flush(Duration::from_millis(1));
        assert_eq!(lines.0.waiting().lost, 4);
        drop(let_go);
        lines.flush(LONG);
        lines.put(b"more\n");
        lines.flush(LONG);
        let end = b"tenure: 4 log lines lost: stderr was not read\nmore\n";
        assert!(*written.lock().unwrap() == [&line.repeat(17)[..], end].concat());
    }

    #[test]
    fn messages_are_json_where_lines_are() {
        let (mut reader, writer) = pipe().unwrap();
        let lines = Lines::to(writer, LogFormat::Json).unwrap();
        lines.say("a \"name\"\nand more");
        lines.say_at("ERROR", "panicked");
        let wanted = concat!(
            r#"{"level":"INFO","message":"a \"name\"\nand more"}"#,
            "\n",
            r#"{"level":"ERROR","message":"panicked"}"#,
            "\n"
        );
        assert_eq!(read(&mut reader, wanted), wanted);
    }

    #[test]
    fn closed_stderr_does_not_stop_the_command() {
        let (lines, reader) = start();
        drop(reader);
        lines.put(b"one\n");
        lines.flush(LONG);
        lines.put(b"two\n");
        lines.flush(LONG);
        assert!(lines.0.waiting().lines.is_empty());
    }
}
