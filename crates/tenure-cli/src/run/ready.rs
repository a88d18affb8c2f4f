//! `--ready`: how to tell that the child serves.

use std::ffi::OsString;
use std::str::FromStr;

use tenure_core::time::parse_duration;
use tenure_supervise::probe::Probe;

/// As it is written.
#[derive(Debug, Clone)]
pub(super) enum Ready {
    As(Probe),
    /// It accepts connections where the service listens.
    TcpOfService,
    /// It answers at this path where the service listens.
    HttpOfService(String),
}

impl FromStr for Ready {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("none", "") => Ok(Self::As(Probe::None)),
            ("tcp", "") => Ok(Self::TcpOfService),
            ("tcp", address) if address.contains(':') => Ok(Self::As(Probe::Tcp(address.to_owned()))),
            ("tcp", port) if port.parse::<u16>().is_ok() => Ok(Self::As(Probe::Tcp(format!("127.0.0.1:{port}")))),
            ("http", path) if path.starts_with('/') && !path.starts_with("//") => {
                Ok(Self::HttpOfService(path.to_owned()))
            }
            ("http", host) if host.starts_with("//") => Ok(Self::As(Probe::Http(text.to_owned()))),
            ("delay", time) => {
                let time = parse_duration(time).map_err(|error| error.to_string())?;
                Ok(Self::As(Probe::Delay(time)))
            }
            ("exec", script) if !script.is_empty() => {
                let words = ["sh", "-c", script].map(OsString::from);
                Ok(Self::As(Probe::Command(words.to_vec())))
            }
            _ => Err(format!(
                "{text:?} tells nothing; write none, delay:3s, tcp, tcp:PORT, http:/PATH, http://HOST/PATH or exec:SCRIPT"
            )),
        }
    }
}

impl Ready {
    /// With the address at which the service is reached from here.
    pub(super) fn probe(&self, host: &str, port: Option<u16>) -> Result<Probe, String> {
        let port = || port.ok_or_else(|| "--ready: there is no --port".to_owned());
        match self {
            Self::As(probe) => Ok(probe.clone()),
            Self::TcpOfService => Ok(Probe::Tcp(format!("{host}:{}", port()?))),
            Self::HttpOfService(path) => Ok(Probe::Http(format!("http://{host}:{}{path}", port()?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(text: &str) -> Result<String, String> {
        let ready: Ready = text.parse()?;
        ready.probe("10.0.0.1", Some(80)).map(|probe| format!("{probe:?}"))
    }

    #[test]
    fn it_is_read() {
        for (text, means) in [
            ("none", "None"),
            ("delay:3s", "Delay(3s)"),
            ("tcp", r#"Tcp("10.0.0.1:80")"#),
            ("tcp:81", r#"Tcp("127.0.0.1:81")"#),
            ("tcp:host:81", r#"Tcp("host:81")"#),
            ("http:/ping", r#"Http("http://10.0.0.1:80/ping")"#),
            ("http://host/ping", r#"Http("http://host/ping")"#),
            ("exec:test -e x", r#"Command(["sh", "-c", "test -e x"])"#),
        ] {
            assert_eq!(probe(text).as_deref(), Ok(means), "{text}");
        }
        for wrong in ["", "tcp:x", "delay:soon", "exec:", "http:", "perhaps"] {
            assert!(probe(wrong).is_err(), "{wrong}");
        }
        let ready: Ready = "tcp".parse().unwrap();
        assert!(ready.probe("10.0.0.1", None).is_err());
    }
}
