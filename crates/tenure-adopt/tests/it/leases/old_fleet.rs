//! Instances of the old fleet, a program in another language.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenure_testkit::Process;
use tenure_testkit::program::have;
use tenure_testkit::valkey::Server;

use crate::leases::log::RECORD;

/// The ttl of the old fleet's keys. An instance renews them every third of it and uses no fencing, so the ttl must
/// survive a short stall of the machine.
pub(crate) const OLD_TTL: Duration = Duration::from_secs(10);

/// Starts an instance that holds at most `most` of `targets` targets. `None` without Python.
pub(crate) fn start(server: &Server, instance: &str, targets: usize, most: usize) -> Option<Process> {
    let python = have("python3").or_skip()?;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/leases/old_instance.py");
    let process = Process::spawn(instance, |_| {
        let mut command = Command::new(python);
        command.arg(program).arg(server.port().to_string()).arg(instance);
        command.arg(OLD_TTL.as_millis().to_string());
        command.args([targets.to_string(), most.to_string(), RECORD.to_owned()]);
        command
    });
    Some(process.unwrap())
}
