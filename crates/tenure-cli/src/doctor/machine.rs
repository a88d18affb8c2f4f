//! This machine: how many files may be open, and whether the data directory can be used.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use tenure_core::store::Severity;

use super::finding::Diagnosis;

/// Each connection of a client takes a descriptor, and so does each file.
const FEW_FILES: u64 = 4_096;
/// Below this a disk is about to be full.
const LITTLE_ROOM: u64 = 256 << 20;
const MIB: u64 = 1 << 20;

/// Looks at the limits, and at the directory when there is one to look at.
pub(super) fn look(data_dir: Option<&Path>) -> Vec<Diagnosis> {
    // A daemon raises its soft limit to the hard one.
    let mut told = vec![files(getrlimit(Resource::Nofile).maximum)];
    if let Some(path) = data_dir.filter(|path| !path.as_os_str().is_empty()) {
        told.extend(directory(path));
    }
    told
}

fn files(limit: Option<u64>) -> Diagnosis {
    let check = "open files";
    match limit {
        None => Diagnosis::new(check, Severity::Ok, "no limit"),
        Some(limit) if limit >= FEW_FILES => Diagnosis::new(check, Severity::Ok, format!("{limit} may be open")),
        Some(limit) => {
            let detail = format!("only {limit} may be open, and each connection of a client takes one");
            Diagnosis::new(check, Severity::Warning, detail)
                .advise("raise it for a daemon: `ulimit -n 65536`, LimitNOFILE=65536 for systemd")
        }
    }
}

fn directory(path: &Path) -> Vec<Diagnosis> {
    let check = "data directory";
    let shown = path.display();
    let error = |detail: String| Diagnosis::new(check, Severity::Error, detail);
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            return vec![
                Diagnosis::new(check, Severity::Warning, format!("{shown} is not there"))
                    .advise("a daemon makes it at its start, if the directory above lets it"),
            ];
        }
        Err(cause) => return vec![error(format!("{shown} cannot be looked at: {cause}"))],
    };
    if !found.is_dir() {
        return vec![error(format!("{shown} is no directory")).advise("name another one with --data-dir")];
    }
    let mut told = Vec::new();
    if access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let advice = "give it to the user that the daemon runs as: `chown tenure DIR`";
        told.push(error(format!("{shown} cannot be written by this user")).advise(advice));
    } else if found.permissions().mode() & 0o077 != 0 {
        let detail = format!("others may look into {shown}: labels and keys can tell a lot");
        told.push(Diagnosis::new(check, Severity::Warning, detail).advise("`chmod 700 DIR`"));
    } else {
        told.push(Diagnosis::new(check, Severity::Ok, format!("{shown} can be written")));
    }
    told.push(room(path));
    told
}

fn room(path: &Path) -> Diagnosis {
    let check = "data disk";
    match statvfs(path) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let detail = format!("{} MiB free at {}", free / MIB, path.display());
            if free < LITTLE_ROOM {
                return Diagnosis::new(check, Severity::Warning, detail)
                    .advise("make room: a full disk stops every write");
            }
            Diagnosis::new(check, Severity::Ok, detail)
        }
        Err(cause) => Diagnosis::new(check, Severity::Warning, format!("cannot be looked at: {cause}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn few_files_are_a_warning() {
        for (limit, severity) in [
            (None, Severity::Ok),
            (Some(65_536), Severity::Ok),
            (Some(1_024), Severity::Warning),
        ] {
            assert_eq!(files(limit).finding.severity, severity, "{limit:?}");
        }
    }

    #[test]
    fn data_directory_must_be_private_and_writable() {
        let made = tempfile::tempdir().unwrap();
        let severity = |path: &Path| directory(path)[0].finding.severity;
        std::fs::set_permissions(made.path(), Permissions::from_mode(0o700)).unwrap();
        assert_eq!(severity(made.path()), Severity::Ok);
        std::fs::set_permissions(made.path(), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(severity(made.path()), Severity::Warning);
        assert_eq!(severity(&made.path().join("missing")), Severity::Warning);
        let file = made.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(severity(&file), Severity::Error);
    }
}
