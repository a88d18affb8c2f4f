//! The contract for a user who may do no more than the documentation tells to allow: cases of every noun, on both servers.

use tenure_testkit::valkey::Server;

/// The rules as they are documented.
const DOCUMENT: &str = include_str!("../../../../docs/stores.md");

/// Makes the user, and answers the URL for it.
fn url(server: &Server) -> String {
    let rules = DOCUMENT
        .lines()
        .skip_while(|line| !line.starts_with("ACL SETUSER"))
        .take_while(|line| !line.starts_with("```"));
    let rules: Vec<String> = rules
        .flat_map(str::split_whitespace)
        .map(|word| word.trim_end_matches('\\').replace("PASSWORD", "s3cret"))
        .filter(|word| !word.is_empty())
        // The scripts of these tests take their time from a key.
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
                crate::harness_for(Flavour::$flavour, options, super::url).await
            }

            tenure_core::conformance_tests! { @cases make;
                membership: a_member_lapses_exactly_at_its_end, joining_again_supersedes_at_once, a_beat_can_change_the_ttl,
                    labels_come_back, members_are_listed_page_by_page, reasons_are_kept_for_two_max_ttls;
                registry: a_claim_is_new_then_kept_then_moved, a_release_names_the_exact_tenure,
                    claims_are_listed_page_by_page, a_member_takes_over_from_its_own_earlier_tenure;
                lease: tokens_rise_for_ever, a_release_names_the_exact_tenure_and_token, leases_are_listed_page_by_page,
                    a_revision_that_the_store_does_not_know_marks_a_gap;
                lease_end: a_handed_off_lease_waits_for_its_successor, the_janitor_releases_leases_of_the_dead_once,
                    a_burst_of_refused_acquires_engages_the_brake;
                target: targets_are_added_changed_and_removed;
                session: a_session_is_made_left_resumed_and_left_again, an_alias_leads_to_one_session,
                    data_is_merged_field_by_field, sessions_are_listed_by_state_page_by_page;
            }
            tenure_core::roster_conformance_tests!(make);
        }
    )*};
}

least! { valkey: Valkey, redis: Redis }
