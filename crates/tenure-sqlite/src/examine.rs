//! What the doctor looks at: the file, its log, the disk, integrity, the owner, the clock.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_core::clock::within;
use tenure_core::store::{Finding, Severity};
use tenure_core::time::show_duration;

use crate::file::open_reader;
use crate::open_file::OpenFile;
use crate::watch::beside;

/// How long the integrity check may take; a large file is checked as far as that goes.
const CHECK_AT_MOST: Duration = Duration::from_secs(5);
/// A log above this has not been copied into the file for long.
const LARGE_LOG: u64 = 256 << 20;
/// Less free room than this is a warning.
const LITTLE_ROOM: u64 = 1 << 30;
/// Less than this is an error: a commit may fail any moment.
const NO_ROOM: u64 = 64 << 20;
/// A store clock that is further from the wall than this deserves a look.
const FAR_FROM_WALL: Duration = Duration::from_secs(10);
/// The file system types of NFS, where neither locks nor shared memory can be relied on.
const NFS: u64 = 0x6969;

/// Looks at everything. What cannot be looked at is a finding.
pub(crate) async fn examine(file: &OpenFile) -> Vec<Finding> {
    let path = file.path.clone();
    let mut findings = vec![owner(file), clock(file)];
    findings.extend(files(&path, file.watch.look(|| false)));
    // The check reads the log by its index.
    if file.watch.damaged_log().is_none() {
        findings.push(integrity(file, path).await);
    }
    findings
}

fn owner(file: &OpenFile) -> Finding {
    match file.owner() {
        Some(owner) => {
            let serves = owner.listen.map_or_else(
                || "not told to others".to_owned(),
                |listen| format!("served at {listen}"),
            );
            Finding::new("owner", Severity::Ok, format!("this process, {}; {serves}", owner.pid))
        }
        None => Finding::new("owner", Severity::Error, format!("the {} is closed", file.kind.noun)),
    }
}

/// Store time may run ahead of the wall after the wall was stepped back, and behind it after a slow drift.
fn clock(file: &OpenFile) -> Finding {
    let (wall, now) = (file.clock.local().wall_micros(), file.clock.now().micros());
    let apart = Duration::from_micros(wall.abs_diff(now));
    let (severity, side) = match (apart > FAR_FROM_WALL, now > wall) {
        (false, _) => (Severity::Ok, "from"),
        (true, true) => (Severity::Warning, "ahead of"),
        (true, false) => (Severity::Warning, "behind"),
    };
    let apart = show_duration(Duration::from_millis(
        u64::try_from(apart.as_millis()).unwrap_or(u64::MAX),
    ));
    let detail =
        format!("store time is {apart} {side} the wall clock; it never goes back, and that hurts nobody's tenure");
    Finding::new("clock", severity, detail)
}

fn files(path: &Path, wrong: Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    match (wrong, path.metadata()) {
        (None, Ok(meta)) => findings.push(Finding::new(
            "file",
            Severity::Ok,
            format!("{} of {}", size(meta.len()), path.display()),
        )),
        (wrong, looked) => {
            let wrong = wrong.or_else(|| Some(looked.err()?.to_string()));
            findings.push(Finding::new("file", Severity::Error, wrong.unwrap_or_default()));
        }
    }
    let log = beside(path, "-wal").metadata().map_or(0, |meta| meta.len());
    findings.push(if log > LARGE_LOG {
        let detail = format!(
            "{}: a long read or another program keeps it from being copied into the file",
            size(log)
        );
        Finding::new("log", Severity::Warning, detail)
    } else {
        Finding::new("log", Severity::Ok, size(log))
    });
    let directory = path.parent().unwrap_or(Path::new("."));
    match rustix::fs::statvfs(directory) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let severity = match free {
                free if free < NO_ROOM => Severity::Error,
                free if free < LITTLE_ROOM => Severity::Warning,
                _ => Severity::Ok,
            };
            findings.push(Finding::new("disk", severity, format!("{} free", size(free))));
        }
        Err(error) => findings.push(Finding::new(
            "disk",
            Severity::Warning,
            format!("cannot be looked at: {error}"),
        )),
    }
    if rustix::fs::statfs(directory).is_ok_and(|disk| u64::try_from(disk.f_type) == Ok(NFS)) {
        let detail = "the file is on NFS, where locks and shared memory cannot be relied on; move it to a local disk";
        findings.push(Finding::new("file system", Severity::Error, detail));
    }
    findings
}

/// Runs SQLite's quick check on a connection of its own, within bounds.
async fn integrity(file: &OpenFile, path: PathBuf) -> Finding {
    let sql = match open_reader(&path) {
        Ok(sql) => sql,
        Err(cause) => return Finding::new("integrity", Severity::Error, format!("cannot be looked at: {cause}")),
    };
    let stop = sql.get_interrupt_handle();
    let mut check = tokio::task::spawn_blocking(move || -> rusqlite::Result<String> {
        sql.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    });
    let Some(done) = within(file.clock.local(), CHECK_AT_MOST, &mut check).await else {
        stop.interrupt();
        let detail = format!(
            "nothing wrong was found within {}; the file is too large to check whole",
            show_duration(CHECK_AT_MOST)
        );
        return Finding::new("integrity", Severity::Ok, detail);
    };
    match done {
        Ok(Ok(answer)) if answer == "ok" => Finding::new("integrity", Severity::Ok, "quick_check found nothing wrong"),
        Ok(Ok(answer)) => Finding::new(
            "integrity",
            Severity::Error,
            format!("the file is damaged: {answer}; restore a copy"),
        ),
        Ok(Err(error)) => Finding::new("integrity", Severity::Error, format!("the check failed: {error}")),
        Err(error) => Finding::new(
            "integrity",
            Severity::Warning,
            format!("the check did not run: {error}"),
        ),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
