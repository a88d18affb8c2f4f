//! The files that deploy the daemon: read as what they are, and every argument and variable in them given to the binary,
//! which tells whether it knows them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tenure_testkit::{Availability, have};

use crate::docs::text;
use crate::support::{Daemon, run, tenure};

/// The documents of a YAML file.
#[track_caller]
fn yaml(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Asks the binary what it makes of the arguments after `serve` and of the variables; the place that gave each setting.
#[track_caller]
fn explain(what: &str, args: &[String], variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    assert_eq!(args.first().map(String::as_str), Some("serve"), "{what}: {args:?}");
    let mut command = tenure();
    command.args(["config", "explain", "--json"]).args(&args[1..]);
    let ran = run({
        command.envs(variables);
        command
    });
    let explained = ran.json();
    let settings = explained["settings"]
        .as_array()
        .unwrap_or_else(|| panic!("{explained}"));
    let source = |setting: &Value| {
        let of = |field: &str| setting[field].as_str().unwrap_or_default().to_owned();
        (of("key"), of("source"))
    };
    let sources: BTreeMap<_, _> = settings.iter().map(source).collect();
    // A variable that no setting took is one that the daemon does not know.
    let taken = sources.values().filter(|source| *source == "environment").count();
    let given = Vec::from_iter(variables.keys().filter(|name| name.starts_with("TENURE_")));
    assert_eq!(
        taken,
        given.len(),
        "{what}: not all of {given:?} are settings: {sources:?}"
    );
    sources
}

/// A text of Compose with something in place of each `${NAME:?…}`.
fn filled(text: &str) -> String {
    let mut parts = text.split("${");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("secret");
        out.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    out
}

#[test]
fn compose_starts_daemons_that_know_their_settings() {
    let files = yaml("deploy/compose/compose.yml");
    let services = files[0]["services"].as_object().expect("services");
    let mut daemons = 0;
    let mut ports = Vec::new();
    for (name, service) in services {
        for other in service["depends_on"]
            .as_object()
            .into_iter()
            .flat_map(|others| others.keys())
        {
            assert!(
                services[other]["healthcheck"]["test"].is_array(),
                "{other} cannot be waited for"
            );
        }
        ports.extend(strings(&service["ports"]));
        if service["image"] != "tenure" {
            continue;
        }
        daemons += 1;
        let environment = service["environment"].as_object().expect("an environment");
        let variables = environment
            .iter()
            .map(|(name, value)| (name.clone(), filled(value.as_str().unwrap_or_default())));
        let sources = explain(name, &strings(&service["command"]), &variables.collect());
        assert_eq!(
            (&sources["store"][..], &sources["ledger"][..]),
            ("environment", "environment")
        );
        assert_eq!(service["build"]["dockerfile"], "deploy/container/Containerfile.daemon");
    }
    assert_eq!(daemons, 2, "{services:?}");
    assert!(
        ports.iter().all(|port| port.starts_with("127.0.0.1:")),
        "published to the world: {ports:?}"
    );
}

/// The arguments of the pod's container, with the file of tokens where a test can have it. It is in the secret that is mounted
/// where the arguments say, and the daemon takes it.
#[track_caller]
fn with_tokens(dir: &Path, secrets: &BTreeMap<&str, &Value>, spec: &Value) -> Vec<String> {
    let (volume, container) = (&spec["volumes"][0], &spec["containers"][0]);
    let tokens = &secrets[volume["secret"]["secretName"].as_str().expect("a volume of a secret")]["tokens.toml"];
    let file = dir.join("tokens.toml");
    std::fs::write(&file, tokens.as_str().expect("a file")).unwrap();
    let mut check = tenure();
    check.args(["token", "check"]).arg(&file);
    let ran = run(check);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);

    let mount = &container["volumeMounts"][0];
    assert_eq!(mount["name"], volume["name"]);
    let there = format!("{}/tokens.toml", mount["mountPath"].as_str().expect("a path"));
    let args = strings(&container["args"]);
    assert!(args.iter().any(|arg| arg.ends_with(&there)), "{args:?}");
    let replaced = args.iter().map(|arg| arg.replace(&there, file.to_str().unwrap()));
    replaced.collect()
}

#[test]
fn kubernetes_runs_pods_that_fit_each_other() {
    let documents = yaml("deploy/kubernetes/tenure.yml");
    let of = |kind: &str| {
        let mut found = documents.iter().filter(|document| document["kind"] == kind);
        let one = found.next().unwrap_or_else(|| panic!("no {kind}"));
        assert!(found.next().is_none(), "two of {kind}");
        one
    };
    let pod = &of("Deployment")["spec"]["template"];
    let labels = &pod["metadata"]["labels"];
    for (kind, selector) in [
        ("Deployment", &of("Deployment")["spec"]["selector"]["matchLabels"]),
        ("Service", &of("Service")["spec"]["selector"]),
        (
            "PodDisruptionBudget",
            &of("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        ),
        (
            "NetworkPolicy",
            &of("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        ),
    ] {
        assert_eq!(selector, labels, "{kind} selects other pods");
    }
    let container = &pod["spec"]["containers"][0];
    let secrets = documents.iter().filter(|document| document["kind"] == "Secret");
    let secrets: BTreeMap<_, _> = secrets
        .map(|secret| {
            (
                secret["metadata"]["name"].as_str().expect("a name"),
                &secret["stringData"],
            )
        })
        .collect();
    let secret = secrets["tenure"].as_object().expect("a secret");
    let mut variables: BTreeMap<_, _> = secret
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    for variable in container["env"].as_array().expect("variables") {
        let of = |field: &str| variable[field].as_str().unwrap_or_default().to_owned();
        variables.insert(of("name"), of("value"));
    }
    let dir = tempfile::tempdir().unwrap();
    let args = with_tokens(dir.path(), &secrets, &pod["spec"]);
    let sources = explain("the pod", &args, &variables);
    assert_eq!(sources["tokens"], "flag");

    let document: Value = serde_json::from_str(&served()).unwrap();
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().expect("a path");
        assert!(document["paths"][path].is_object(), "{probe} asks for {path}");
        assert_eq!(
            container[probe]["httpGet"]["port"], container["ports"][0]["name"],
            "{probe}"
        );
    }
    let port = container["ports"][0]["containerPort"].as_u64().expect("a port");
    assert!(args.iter().any(|arg| arg.ends_with(&format!(":{port}"))));
    assert_eq!(of("NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"], port);
    let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64().expect("a grace");
    assert!(grace >= 12, "preStop, drain and the end take longer than {grace} s");
}

fn served() -> String {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { tenure_server::document() })
}

#[test]
fn image_uses_existing_commands_and_flags() {
    let recipe = text("deploy/container/Containerfile.daemon");
    let joined = recipe.replace("\\\n", " ");
    let line = |word: &str| {
        let mut lines = joined.lines().map(str::trim).filter(|line| line.starts_with(word));
        lines.next_back().unwrap_or_else(|| panic!("no {word}")).to_owned()
    };
    let words = |line: &str| -> Vec<String> {
        let list = &line[line.find('[').expect("a list")..];
        serde_json::from_str(list).unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let oldest = text("Cargo.toml");
    let oldest = oldest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .expect("a version");
    assert!(
        recipe.contains(&format!("FROM rust:{}-", oldest.trim_matches('"'))),
        "another Rust than {oldest}"
    );
    assert!(!line("USER").contains("root") && !line("USER").ends_with(" 0"));

    let binary = words(&line("ENTRYPOINT"));
    assert!(recipe.contains(&format!("/build/target/release/tenure {}\n", binary[0])));
    let variables = line("ENV ");
    let variables = variables["ENV ".len()..].split_whitespace();
    let variables = variables
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    explain("the image", &words(&line("CMD")), &variables.collect());
}

#[test]
fn image_healthcheck_follows_the_daemon() {
    let recipe = text("deploy/container/Containerfile.daemon").replace("\\\n", " ");
    let line = recipe
        .lines()
        .find(|line| line.starts_with("HEALTHCHECK"))
        .expect("a check");
    let check: Vec<String> = serde_json::from_str(&line[line.find('[').expect("a list")..]).unwrap();
    if have("bash").or_skip().is_none() {
        return;
    }
    let ask = |port: u16| {
        let mut ask = Command::new(&check[0]);
        ask.args(check[1..].iter().map(|arg| arg.replace("7717", &port.to_string())));
        run(ask)
    };
    let nobody = ask(1);
    assert_eq!(nobody.code, Some(1), "{}{}", nobody.out, nobody.err);
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.toml");
    let mut new = tenure();
    new.args(["token", "new", "--name", "somebody", "--scope", "read", "--add"])
        .arg(&tokens);
    let made = run(new);
    assert_eq!(made.code, Some(0), "{}{}", made.out, made.err);
    for args in [&[][..], &["--tokens", tokens.to_str().unwrap()]] {
        let daemon = Daemon::start(&[&["--store", "memory:"], args].concat());
        let asked = ask(daemon.addr.port());
        assert_eq!(asked.code, Some(0), "{args:?}: {}{}", asked.out, asked.err);
    }
}

#[test]
fn systemd_takes_the_unit_and_finds_little_to_say_against_it() {
    // systemd is part of the system, not of the tests' requirements, so it may be missing.
    let Availability::Found(analyze) = have("systemd-analyze") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join("tenure.service");
    let there = text("deploy/systemd/tenure.service");
    assert_eq!(there.matches("/usr/local/bin/tenure").count(), 1);
    std::fs::write(
        &unit,
        there.replace("/usr/local/bin/tenure", env!("CARGO_BIN_EXE_tenure")),
    )
    .unwrap();
    for args in [
        &["verify"][..],
        &["security", "--offline=yes", "--threshold=15", "--no-pager"],
    ] {
        let mut command = Command::new(&analyze);
        command.args(args).arg(&unit);
        let ran = run(command);
        assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.out, ran.err);
    }

    let setting = |name: &str| {
        there
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .collect::<Vec<_>>()
    };
    let start = setting("ExecStart=")[0].split_whitespace().skip(1).map(str::to_owned);
    let variables = setting("Environment=")
        .into_iter()
        .filter_map(|pair| pair.split_once('='));
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    explain("the unit", &Vec::from_iter(start), &variables.collect());
}

/// The one file of a kustomization, and the documents in it.
#[track_caller]
fn resources(folder: &str) -> Vec<Value> {
    let kustomization = yaml(&format!("{folder}/kustomization.yml"));
    let files = strings(&kustomization[0]["resources"]);
    files
        .iter()
        .flat_map(|file| yaml(&format!("{folder}/{file}")))
        .collect()
}

#[test]
fn kustomize_names_the_image_and_scrapes_the_service() {
    let base = resources("deploy/kubernetes");
    let of = |kind: &str| {
        base.iter()
            .find(|document| document["kind"] == kind)
            .expect("a document")
    };
    let image = &yaml("deploy/kubernetes/kustomization.yml")[0]["images"][0];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&image["name"], &image["newTag"]), (&"tenure".into(), &version.into()));
    let container = &of("Deployment")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], format!("tenure:{version}"));

    let monitors = resources("deploy/kubernetes/monitoring");
    let (monitor, service) = (&monitors[0]["spec"], of("Service"));
    assert_eq!(monitor["selector"]["matchLabels"], service["metadata"]["labels"]);
    assert_eq!(monitor["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
    let document: Value = serde_json::from_str(&served()).unwrap();
    let path = monitor["endpoints"][0]["path"].as_str().expect("a path");
    assert!(document["paths"][path].is_object(), "no route {path}");
}

#[test]
fn deployments_name_packages_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    for file in [
        "README.md",
        "deploy/container/Containerfile.daemon",
        "deploy/systemd/tenure.service",
    ] {
        let text = text(file);
        let mut named = 0;
        for start in ["tenure_", "tenure-", "tenure_cli-", "tenure-cli-", "tenure:"] {
            for (at, _) in text.match_indices(start) {
                let rest = &text[at + start.len()..];
                if rest.starts_with("0.") {
                    named += 1;
                    assert!(rest.starts_with(version), "{file}: {start}{:.12}", rest);
                }
            }
        }
        assert!(named > 0, "{file} names no package");
    }
}

#[test]
fn release_workflow_makes_and_checks_the_packages() {
    let workflow = &yaml(".github/workflows/release.yml")[0];
    let steps = |job: &str| -> String {
        let steps = workflow["jobs"][job]["steps"]
            .as_array()
            .unwrap_or_else(|| panic!("no job {job}"));
        steps.iter().filter_map(|step| step["run"].as_str()).collect()
    };
    assert!(steps("packages").contains("cargo xtask dist --check"));
    assert!(steps("crates").contains("cargo xtask package"));
    assert_eq!(workflow["permissions"]["contents"], "read");
    assert!(!text(".github/workflows/release.yml").contains("secrets."), "a secret");
}
