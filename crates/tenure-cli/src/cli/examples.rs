//! The examples that the help of each command ends with.

pub(super) const TENURE: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage. `join`, `lock` and `run` exit with the code of their command.
TENURE_LOG sets what is logged to stderr (warn, debug, tenure=trace), TENURE_LOG_FORMAT=json its format.";

pub(super) const SERVE: &str = "\
Examples:
  tenure serve
  tenure serve --config /etc/tenure.toml --data-dir /var/lib/tenure
  tenure serve --store valkey://db:6379 --ledger postgres://db/tenure --max-ttl 1m";

pub(super) const JOIN: &str = "\
Examples:
  tenure join --group ingest --member gw-1 --ttl 10s -- ./gateway --port 8000
  tenure join --group workers --label zone=a --on-lapse stop -- ./worker
  tenure join --group workers --progress-within 30s --progress-file /run/worker.alive -- ./worker";

pub(super) const LOCK: &str = "\
Examples:
  tenure lock nightly-backup -- ./backup.sh
  tenure lock deploy --wait 30s --group ci -- sh -c './deploy --token $TENURE_FENCING_TOKEN'";

pub(super) const RUN: &str = "\
Examples:
  tenure run --leader lease:report --store http://127.0.0.1:7717 -- ./report
  tenure run --leader litefs:/data --service music --port 4533 -- navidrome";

pub(super) const CLAIM: &str = "\
Examples:
  tenure claim devices cam-17 cam-18 --group ingest --as gw-1
  tenure join --group ingest --member gw-1 -- sh -c 'tenure claim devices cam-17; exec ./gateway'";

pub(super) const ACQUIRE: &str = "\
Examples:
  tenure acquire report --group workers --as worker-1
  tenure acquire report --group workers --as worker-1 --wait 30s
  tenure acquire slots --group workers --as worker-1 --holders 3
  tenure join --group workers -- sh -c 'tenure acquire report && exec ./report'";

pub(super) const RELEASE: &str = "\
Examples:
  tenure release claim devices cam-17 --group ingest --as gw-1
  tenure release lease report --group workers --as worker-1 --to worker-2";

pub(super) const LABELS: &str = "\
Examples:
  tenure labels zone=b version=2.1 --group ingest --as gw-1
  tenure labels --none --group ingest --as gw-1";

pub(super) const EXPEL: &str = "\
Examples:
  tenure expel gw-1 --group ingest             shows what it will do, and asks
  tenure expel gw-1@1795278164198270 --group ingest --yes";

pub(super) const GROUPS: &str = "\
Examples:
  tenure groups
  tenure groups ingest --json";

pub(super) const MEMBERS: &str = "\
Examples:
  tenure members --group ingest
  tenure members gw-1 --group ingest --json";

pub(super) const CLAIMS: &str = "\
Examples:
  tenure claims --group ingest --registry devices --owner gw-1
  tenure claims cam-17 --group ingest --registry devices";

pub(super) const LEASES: &str = "\
Examples:
  tenure leases --group pollers --holder node-1
  tenure leases endpoint-7 --group pollers --json
  tenure leases release endpoint-7 --group pollers";

pub(super) const TARGETS: &str = "\
Examples:
  tenure targets --group pollers
  tenure targets add endpoint-1 endpoint-2 --group pollers
  tenure targets pause endpoint-1 --group pollers";

pub(super) const SESSIONS: &str = "\
Examples:
  tenure sessions --group chat --state disconnected
  tenure sessions --group chat --alias alice";

pub(super) const ROSTER: &str = "\
Examples:
  tenure roster put ann --roster desk --capacity 2
  tenure roster available --roster desk
  tenure roster deactivate ann --roster desk";

pub(super) const EVENTS: &str = "\
Examples:
  tenure events --group ingest --follow
  tenure events --group ingest --type lapsed,evicted --last 20 --json";

pub(super) const WHY: &str = "\
Examples:
  tenure why gw-1 --group ingest
  tenure why devices/cam-17 --group ingest
  tenure why lease:endpoint-7 --group pollers
  tenure why session:alice-1 --group chat";

pub(super) const STATUS: &str = "\
Examples:
  tenure status
  tenure status --group ingest --json";

pub(super) const SWEEP: &str = "\
Examples:
  tenure sweep --group ingest --dry-run
  tenure sweep --group ingest --force          after the brake has engaged, and you know why";

pub(super) const SETTLE: &str = "\
Examples:
  tenure settle                                a new store: asks, and then grants leases at once
  tenure settle --group fleet --cause data_loss --yes";

pub(super) const ADOPT: &str = "\
Examples:
  tenure adopt registry --store valkey://db --hash connections --heartbeat 'instance:{id}' --dry-run
  tenure adopt leases --store valkey://db --pattern 'poll:lease:*'
  tenure adopt sessions --store valkey://db --pattern 's:*' --disconnected-field left --dry-run";

pub(super) const BENCH: &str = "\
Examples:
  tenure bench
  tenure bench --store valkey://db:6379 --members 10000 --for 10s --json
  tenure bench failover";

pub(crate) const BENCH_FAILOVER: &str = "\
Examples:
  tenure bench failover
  tenure bench failover --store valkey://db:6379 --ttl 10s --rounds 20 --faults kill,freeze";

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use crate::cli::Cli;

    /// The words of a line as a shell would take it, up to a redirection, a pipe, or the remark behind it.
    fn words(line: &str) -> Vec<String> {
        let end = [" > ", " | ", "  "].iter().filter_map(|end| line.find(end)).min();
        let line = &line[..end.unwrap_or(line.len())];
        line.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect()
    }

    fn lines(command: &Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let own = help.lines().filter_map(|line| {
            let line = line.strip_prefix("  ")?;
            // Variables are set before it.
            let at = line.find("tenure ")?;
            line[..at]
                .split(' ')
                .all(|word| word.is_empty() || word.contains('='))
                .then(|| line[at..].to_owned())
        });
        own.chain(command.get_subcommands().flat_map(lines)).collect()
    }

    #[test]
    fn every_example_is_a_command_line_that_is_understood() {
        let lines = lines(&Cli::command());
        assert!(lines.len() > 30, "{lines:?}");
        for line in lines {
            let parsed = Cli::command().try_get_matches_from(words(&line));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}
