//! The service that `run` registers, with what Nomad says about it as the default.

use clap::Args;
use tenure_supervise::catalog::Service;

use crate::exit::Usage;

/// What others find.
#[derive(Debug, Clone, Args)]
pub(super) struct ServiceArgs {
    /// The name of the service in the catalog. Without it nothing is registered.
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Where it listens; NOMAD_PORT_<label> when left out.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Where it listens; NOMAD_IP_<label> when left out, or the address of the catalog's node.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Its id, the same for every life of the service on this node; NAME-<NOMAD_ALLOC_ID> or NAME-<hostname>-<port> when
    /// left out.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Which port of the Nomad job.
    #[arg(long, value_name = "LABEL", default_value = "http")]
    label: String,
    /// A tag of the service; may be repeated.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Something to know about the service; may be repeated.
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = super::pair)]
    meta: Vec<(String, String)>,
}

impl ServiceArgs {
    /// Whether there is a service to register.
    pub(super) fn is_wanted(&self) -> bool {
        self.service.is_some()
    }

    pub(super) fn port(&self, env: impl Fn(&str) -> Option<String>) -> Option<u16> {
        self.port.or_else(|| self.nomad("NOMAD_PORT_", env)?.parse().ok())
    }

    /// Where the supervisor itself reaches it.
    pub(super) fn host(&self, env: impl Fn(&str) -> Option<String>) -> String {
        let address = self.address.clone().or_else(|| self.nomad("NOMAD_IP_", env));
        address.unwrap_or_else(|| "127.0.0.1".to_owned())
    }

    /// What Nomad says about the port. In the names of variables it writes `_` for whatever they cannot have in a label,
    /// above all for `-`. <https://github.com/hashicorp/nomad/pull/2406>
    fn nomad(&self, prefix: &str, env: impl Fn(&str) -> Option<String>) -> Option<String> {
        let clean = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let cleaned: String = self.label.chars().map(clean).collect();
        env(&format!("{prefix}{}", self.label)).or_else(|| env(&format!("{prefix}{cleaned}")))
    }

    /// The service. `None` when none is wanted.
    ///
    /// # Errors
    /// `Usage` that names what is missing, or says what no catalog takes.
    pub(super) fn service(
        &self,
        env: impl Fn(&str) -> Option<String> + Copy,
        hostname: &str,
    ) -> Result<Option<Service>, Usage> {
        let Some(name) = &self.service else {
            return Ok(None);
        };
        let port = self.port(env).ok_or_else(|| {
            let variable = format!("NOMAD_PORT_{}", self.label);
            Usage::new(format!("--service {name} has no port: give --port, or set {variable}"))
        })?;
        let id = self.id.clone().unwrap_or_else(|| match env("NOMAD_ALLOC_ID") {
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
    struct Line {
        #[command(flatten)]
        service: ServiceArgs,
    }

    fn service(args: &[&str], env: &[(&str, &str)]) -> Result<Option<Service>, String> {
        let line = Line::parse_from(["x"].iter().chain(args));
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
        assert_eq!((found.id.as_str(), found.port, found.address), ("one", 80, None));
        assert_eq!((found.meta["a"].as_str(), found.tags), ("b", vec!["t".to_owned()]));
    }

    #[test]
    fn a_label_is_found_under_the_name_that_nomad_gives_it() {
        let nomad = [("NOMAD_IP_admin_api", "10.0.0.7"), ("NOMAD_PORT_admin_api", "81")];
        let args = ["--service", "music", "--label", "admin-api"];
        let found = service(&args, &nomad).unwrap().unwrap();
        assert_eq!((found.port, found.address.as_deref()), (81, Some("10.0.0.7")));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = service(&["--service", "music"], &[]).unwrap_err();
        assert!(error.contains("--port") && error.contains("NOMAD_PORT_http"), "{error}");
        let found = service(&["--service", "music", "--port", "1"], &[]).unwrap().unwrap();
        assert_eq!((found.id.as_str(), found.address), ("music-box-1", None));
        assert_eq!(service(&[], &[]), Ok(None));
        let twice = ["--service", "music", "--port", "1", "--meta", "a=b", "--meta", "a=c"];
        assert!(service(&twice, &[]).is_err());
    }
}
