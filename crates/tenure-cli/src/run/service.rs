//! The service that `run` registers, with what Nomad says about it as the default.

use clap::Args;
use tenure_supervise::catalog::Service;

use crate::exit::Usage;

/// The allocation that a task of Nomad belongs to.
const ALLOCATION: &str = "NOMAD_ALLOC_ID";
/// Variables that every task of Nomad has.
const NOMAD: [&str; 5] = [
    ALLOCATION,
    "NOMAD_ALLOC_NAME",
    "NOMAD_JOB_NAME",
    "NOMAD_TASK_NAME",
    "NOMAD_TASK_DIR",
];

/// The service as clients find it.
#[derive(Debug, Clone, Args)]
pub(super) struct ServiceArgs {
    /// The name of the service in the catalog. Without it nothing is registered.
    #[arg(long, value_name = "NAME", help_heading = "Service")]
    service: Option<String>,
    /// The port of the service; default: NOMAD_PORT_<label>.
    #[arg(long, value_name = "PORT", help_heading = "Service")]
    port: Option<u16>,
    /// The address of the service; default: NOMAD_IP_<label>, or outside of Nomad the address of the catalog's node.
    #[arg(long, value_name = "ADDRESS", help_heading = "Service")]
    address: Option<String>,
    /// The id of the service, the same after every restart on this node; default: NAME-<NOMAD_ALLOC_ID>, or outside of Nomad
    /// NAME-<hostname>-<port>.
    #[arg(long, value_name = "ID", help_heading = "Service")]
    id: Option<String>,
    /// The label of the Nomad port.
    #[arg(long, value_name = "LABEL", default_value = "http", help_heading = "Service")]
    label: String,
    /// A tag of the service; may be repeated.
    #[arg(long = "tag", value_name = "TAG", help_heading = "Service")]
    tags: Vec<String>,
    /// Metadata of the service; may be repeated.
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = super::pair, help_heading = "Service")]
    meta: Vec<(String, String)>,
}

impl ServiceArgs {
    /// Whether there is a service to register.
    pub(super) fn is_wanted(&self) -> bool {
        self.service.is_some()
    }

    /// The port of the service; `None` if it is not given.
    ///
    /// # Errors
    /// `Usage` for what Nomad calls a port and is none.
    pub(super) fn port(&self, env: impl Fn(&str) -> Option<String>) -> Result<Option<u16>, Usage> {
        if self.port.is_some() {
            return Ok(self.port);
        }
        let read = |text: String| match text.parse() {
            Ok(port @ 1..) => Ok(port),
            _ => {
                let variable = self.variable("NOMAD_PORT_");
                Err(Usage::new(format!(
                    "{variable}: {text:?} is not a port; it has to be a number from 1 to 65535"
                )))
            }
        };
        self.nomad("NOMAD_PORT_", env).map(read).transpose()
    }

    /// The address by which the supervisor reaches the service.
    pub(super) fn host(&self, env: impl Fn(&str) -> Option<String>) -> String {
        let address = self.address.clone().or_else(|| self.nomad("NOMAD_IP_", env));
        address.unwrap_or_else(|| "127.0.0.1".to_owned())
    }

    /// What Nomad says about the port. In the names of variables it writes `_` for whatever they cannot have in a label,
    /// above all for `-`. <https://github.com/hashicorp/nomad/pull/2406>
    fn nomad(&self, prefix: &str, env: impl Fn(&str) -> Option<String>) -> Option<String> {
        env(&format!("{prefix}{}", self.label)).or_else(|| env(&self.variable(prefix)))
    }

    /// The name of a variable, as a job or a shell can set it.
    fn variable(&self, prefix: &str) -> String {
        let clean = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let cleaned: String = self.label.chars().map(clean).collect();
        format!("{prefix}{cleaned}")
    }

    /// Whether this is a task of Nomad: then everything is said by Nomad, and what is left out there is a mistake of the job.
    fn is_task_of_nomad(&self, env: impl Fn(&str) -> Option<String> + Copy) -> bool {
        let of_label = ["NOMAD_IP_", "NOMAD_PORT_"];
        NOMAD.iter().any(|name| env(name).is_some()) || of_label.iter().any(|prefix| self.nomad(prefix, env).is_some())
    }

    /// All required settings that are missing.
    fn missing(&self, has_port: bool, env: impl Fn(&str) -> Option<String> + Copy) -> Vec<String> {
        let mut missing = Vec::new();
        if !has_port {
            missing.push(format!("--port (or {})", self.variable("NOMAD_PORT_")));
        }
        if self.is_task_of_nomad(env) {
            if self.address.is_none() && self.nomad("NOMAD_IP_", env).is_none() {
                missing.push(format!("--address (or {})", self.variable("NOMAD_IP_")));
            }
            if self.id.is_none() && env(ALLOCATION).is_none() {
                missing.push(format!("--id (or {ALLOCATION})"));
            }
        }
        missing
    }

    /// The service. `None` when none is wanted.
    ///
    /// # Errors
    /// `Usage` that names all that is missing, or says what no catalog takes.
    pub(super) fn service(
        &self,
        env: impl Fn(&str) -> Option<String> + Copy,
        hostname: &str,
    ) -> Result<Option<Service>, Usage> {
        let Some(name) = &self.service else {
            return Ok(None);
        };
        let port = self.port(env);
        let missing = self.missing(!matches!(port, Ok(None)), env);
        let lacks = || {
            let missing = missing.join(", ");
            format!("--service {name} lacks {missing}; is --label {} right?", self.label)
        };
        let port = match port {
            Ok(Some(port)) if missing.is_empty() => port,
            Err(wrong) if missing.is_empty() => return Err(wrong),
            Err(wrong) => return Err(Usage::new(format!("{wrong}; {}", lacks()))),
            Ok(_) => return Err(Usage::new(lacks())),
        };
        let id = self.id.clone().unwrap_or_else(|| match env(ALLOCATION) {
            Some(allocation) => format!("{name}-{allocation}"),
            None => format!("{name}-{hostname}-{port}"),
        });
        let mut service = Service::new(id, name, port);
        service.address = self.address.clone().or_else(|| self.nomad("NOMAD_IP_", env));
        service.tags.clone_from(&self.tags);
        service.meta = self.meta.iter().cloned().collect();
        if service.meta.len() < self.meta.len() {
            return Err(Usage::new("--meta: a key is given twice"));
        }
        Ok(Some(service))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct CommandLine {
        #[command(flatten)]
        service: ServiceArgs,
    }

    fn service(args: &[&str], env: &[(&str, &str)]) -> Result<Option<Service>, String> {
        let line = CommandLine::parse_from(["x"].iter().chain(args));
        let env = |name: &str| {
            let found = env.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        line.service.service(env, "box").map_err(|error| error.to_string())
    }

    #[test]
    fn nomad_says_what_is_left_out() {
        let nomad = [
            ("NOMAD_IP_http", "10.0.0.7"),
            ("NOMAD_PORT_http", "4533"),
            ("NOMAD_IP_web", "10.0.0.8"),
            ("NOMAD_PORT_web", "80"),
            ("NOMAD_ALLOC_ID", "a-b-c"),
        ];
        let found = service(&["--service", "music"], &nomad).unwrap().unwrap();
        assert_eq!((found.id.as_str(), found.port), ("music-a-b-c", 4533));
        assert_eq!(found.address.as_deref(), Some("10.0.0.7"));
        let args = [
            "--service",
            "music",
            "--label",
            "web",
            "--id",
            "one",
            "--meta",
            "a=b",
            "--tag",
            "t",
        ];
        let found = service(&args, &nomad).unwrap().unwrap();
        assert_eq!((found.id.as_str(), found.port), ("one", 80));
        assert_eq!(found.address.as_deref(), Some("10.0.0.8"));
        assert_eq!((found.meta["a"].as_str(), found.tags), ("b", vec!["t".to_owned()]));
    }

    #[test]
    fn a_label_is_found_under_the_name_that_nomad_gives_it() {
        let nomad = [("NOMAD_IP_admin_api", "10.0.0.7"), ("NOMAD_PORT_admin_api", "81")];
        let args = ["--service", "music", "--label", "admin-api", "--id", "one"];
        let found = service(&args, &nomad).unwrap().unwrap();
        assert_eq!((found.port, found.address.as_deref()), (81, Some("10.0.0.7")));
        // A message names what can be set.
        let error = service(&args, &nomad[..1]).unwrap_err();
        assert!(
            error.contains("NOMAD_PORT_admin_api") && !error.contains("NOMAD_PORT_admin-api"),
            "{error}"
        );
    }

    #[test]
    fn all_missing_nomad_variables_are_named() {
        let task = ("NOMAD_TASK_NAME", "music");
        let error = service(&["--service", "music", "--label", "web"], &[task]).unwrap_err();
        for part in [
            "NOMAD_PORT_web",
            "NOMAD_IP_web",
            "NOMAD_ALLOC_ID",
            "--port",
            "--address",
            "--id",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let port = ("NOMAD_PORT_http", "4533");
        let error = service(&["--service", "music", "--id", "one"], &[port]).unwrap_err();
        assert!(
            error.contains("NOMAD_IP_http") && !error.contains("NOMAD_ALLOC_ID"),
            "{error}"
        );
        let given = ["--service", "music", "--id", "one", "--address", "10.0.0.7"];
        assert_eq!(service(&given, &[task, port]).unwrap().unwrap().port, 4533);
        for odd in ["", "0", "65536", "http", "-1"] {
            let error = service(&given, &[task, ("NOMAD_PORT_http", odd)]).unwrap_err();
            assert!(error.contains("NOMAD_PORT_http"), "{odd}: {error}");
        }
        let error = service(&given, &[("NOMAD_PORT_http", "80a")]).unwrap_err();
        assert!(error.contains("\"80a\" is not a port"), "{error}");
        let error = service(&["--service", "music"], &[("NOMAD_PORT_http", "80a")]).unwrap_err();
        for part in ["\"80a\" is not a port", "NOMAD_IP_http", "NOMAD_ALLOC_ID"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn missing_settings_are_named() {
        let error = service(&["--service", "music"], &[]).unwrap_err();
        assert!(error.contains("--port") && error.contains("NOMAD_PORT_http"), "{error}");
        let found = service(&["--service", "music", "--port", "1"], &[]).unwrap().unwrap();
        assert_eq!((found.id.as_str(), found.address), ("music-box-1", None));
        assert_eq!(service(&[], &[]), Ok(None));
        let twice = ["--service", "music", "--port", "1", "--meta", "a=b", "--meta", "a=c"];
        assert!(service(&twice, &[]).is_err());
    }
}
