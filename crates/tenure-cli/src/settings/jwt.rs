//! The settings of the tokens of providers, put together from those of the daemon and the one variable with a secret.

use tenure_core::error::Error;
use tenure_server::jwt::{JwtAlgorithm, JwtSecret, JwtSettings, KeySource};

use super::{Environment, Settings};
use crate::exit::Usage;

/// The only way to give the secret itself. A command line is read by everybody on the machine, and a file of settings is
/// copied about.
const SECRET: &str = "TENURE_JWT_SECRET";

impl Settings {
    /// The rules for tokens of providers; `None` without keys, when none is needed.
    ///
    /// # Errors
    /// `Usage` for more than one source of keys, for settings without any, and for what cannot work.
    pub(crate) fn jwt(&self, environment: Environment<'_>) -> Result<Option<JwtSettings>, Usage> {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let sources = [
            given(&self.jwt_secret_file).map(|file| KeySource::SecretFile(file.into())),
            environment(SECRET)
                .filter(|secret| !secret.is_empty())
                .map(|secret| KeySource::Secret(JwtSecret::new(secret))),
            given(&self.jwt_jwks_file).map(|file| KeySource::JwksFile(file.into())),
        ];
        let mut sources = sources.into_iter().flatten();
        let Some(keys) = sources.next() else {
            return self.no_keys();
        };
        if sources.next().is_some() {
            let message = format!("the keys of tokens have one source: jwt.secret_file, {SECRET} or jwt.jwks_file");
            return Err(Usage::new(message));
        }
        let algorithm: Option<JwtAlgorithm> = given(&self.jwt_algorithm)
            .map(|name| name.parse().map_err(|error| usage(&error)))
            .transpose()?;
        let mut settings = match (keys, algorithm) {
            (KeySource::JwksFile(_), None) => {
                let message = "jwt.jwks_file needs jwt.algorithm: the one that tokens are signed by, like RS256";
                return Err(Usage::new(message));
            }
            (KeySource::JwksFile(file), Some(algorithm)) => JwtSettings::with_jwks(file, algorithm),
            (secret, algorithm) => {
                let mut settings = JwtSettings::with_secret(secret);
                settings.algorithm = algorithm.unwrap_or(settings.algorithm);
                settings
            }
        };
        settings.leeway = self.jwt_leeway;
        settings.refresh = self.jwt_refresh;
        settings.issuer = given(&self.jwt_issuer);
        settings.audience = given(&self.jwt_audience);
        let claims = self
            .jwt_require
            .split(',')
            .map(str::trim)
            .filter(|claim| !claim.is_empty());
        settings.required = claims
            .map(|claim| claim.parse().map_err(|error| usage(&error)))
            .collect::<Result<_, _>>()?;
        settings.check().map_err(|error| usage(&error))?;
        Ok(Some(settings))
    }

    /// Rules for tokens without keys would serve every caller without a token.
    fn no_keys<T>(&self) -> Result<Option<T>, Usage> {
        let lonely = [
            ("jwt.algorithm", &self.jwt_algorithm),
            ("jwt.issuer", &self.jwt_issuer),
            ("jwt.audience", &self.jwt_audience),
            ("jwt.require", &self.jwt_require),
        ];
        match lonely.iter().find(|(_, value)| !value.is_empty()) {
            None => Ok(None),
            Some((key, _)) => Err(Usage::new(format!(
                "{key} is given without keys, so no token would be asked for: add jwt.secret_file, {SECRET} or jwt.jwks_file"
            ))),
        }
    }
}

fn usage(error: &Error) -> Usage {
    Usage::new(error.chain())
}

#[cfg(test)]
mod tests {
    use super::super::Flags;
    use super::*;

    fn jwt(flags: &[(&'static str, &str)], secret: &str) -> Result<Option<JwtSettings>, String> {
        let settings = Settings::load(&Flags::of(None, flags), &|_| None).unwrap();
        let environment = |name: &str| (name == SECRET && !secret.is_empty()).then(|| secret.to_owned());
        settings.jwt(&environment).map_err(|error| error.to_string())
    }

    #[test]
    fn without_keys_no_token_is_asked_for() {
        assert_eq!(jwt(&[], "").unwrap(), None);
    }

    #[test]
    fn hs256_secret_comes_from_variable_or_file() {
        let by_variable = jwt(&[("jwt.require", "role=provider, team=a")], "s3cret")
            .unwrap()
            .unwrap();
        assert_eq!(
            (by_variable.algorithm, by_variable.required.len()),
            (JwtAlgorithm::Hs256, 2)
        );
        assert!(!format!("{by_variable:?}").contains("s3cret"));
        let by_file = jwt(&[("jwt.secret_file", "/run/secret"), ("jwt.leeway", "1s")], "")
            .unwrap()
            .unwrap();
        assert_eq!(by_file.keys, KeySource::SecretFile("/run/secret".into()));
        assert_eq!(by_file.leeway, std::time::Duration::from_secs(1));
    }

    #[test]
    fn impossible_settings_are_refused() {
        for (flags, secret, must_say) in [
            (&[("jwt.issuer", "me")][..], "", "jwt.issuer is given without keys"),
            (&[("jwt.secret_file", "f")], "s", "one source"),
            (&[("jwt.jwks_file", "f")], "", "needs jwt.algorithm"),
            (&[("jwt.algorithm", "RS256")], "s", "does not fit"),
            (&[("jwt.algorithm", "none")], "s", "is not one of"),
            (&[("jwt.require", "role")], "s", "write name=value"),
            (&[("jwt.leeway", "5m")], "s", "jwt.leeway"),
        ] {
            let error = jwt(flags, secret).unwrap_err();
            assert!(error.contains(must_say), "{error}");
        }
    }
}
