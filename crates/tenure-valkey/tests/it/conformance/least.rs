//! The contract for a user with only the documented permissions: cases of every noun, on both servers.

use tenure_testkit::valkey::Server;

/// The documented rules.
const DOCUMENT: &str = include_str!("../../../../../docs/stores.md");

/// Creates the user and returns its URL.
fn url(server: &Server) -> String {
    let rules = DOCUMENT
        .lines()
        .skip_while(|line| !line.starts_with("ACL SETUSER"))
        .take_while(|line| !line.starts_with("```"));
    let rules: Vec<String> = rules
        .flat_map(str::split_whitespace)
        .map(|word| word.trim_end_matches('\\').replace("PASSWORD", "s3cret"))
        .filter(|word| !word.is_empty())
        // The scripts of these tests read their time from a key.
        .chain(["+get".to_owned()])
        .collect();
    assert_eq!(
        server.cli(&rules).expect("the server answers").text(),
        "OK",
        "{rules:?}"
    );
    server.url().replace("://", "://tenure:s3cret@")
}

macro_rules! least {
    ($($server:ident: $flavour:ident),*) => {$(
        mod $server {
            use tenure_core::conformance::Harness;
            use tenure_core::store::StoreOptions;
            use tenure_testkit::valkey::Flavour;

            async fn make(options: StoreOptions) -> Box<dyn Harness> {
                crate::conformance::harness_for(Flavour::$flavour, options, super::url).await
            }

            tenure_core::conformance_tests!(make, one_per_call);
            tenure_core::conformance_tests!(make, waits);
            tenure_core::roster_conformance_tests!(make, one_per_call);
        }
    )*};
}

least! { valkey: Valkey, redis: Redis }
