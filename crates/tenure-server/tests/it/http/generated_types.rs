//! The description of the API, judged by independent tools: Redocly validates it against OpenAPI 3.1, openapi-typescript
//! generates types from it, and the TypeScript compiler checks them together with a client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_testkit::{Availability, have};

/// Where `cargo xtask test` installs the tools.
const TOOLS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../npm/node_modules");
/// The settings of the validator, and the client.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openapi");

struct Tools {
    node: PathBuf,
    generator: PathBuf,
    compiler: PathBuf,
}

impl Tools {
    fn find() -> Option<Self> {
        let node = have("node").or_skip()?;
        let tool = |program: &str, file: &str| {
            let file = Path::new(TOOLS).join(program).join(file);
            match file.is_file() {
                true => Availability::Found(file),
                false => Availability::Missing {
                    program: program.to_owned(),
                },
            }
        };
        Some(Self {
            node,
            generator: tool("openapi-typescript", "bin/cli.js").or_skip()?,
            compiler: tool("typescript", "bin/tsc").or_skip()?,
        })
    }

    /// Validates a document, generates types from it, and compiles them with the client; an error is what the tools print.
    fn check(&self, document: &Value) -> Result<(), String> {
        let dir = TempDir::new().expect("a directory");
        fs::write(dir.path().join("openapi.json"), document.to_string()).expect("a file");
        fs::copy(format!("{FILES}/client.ts"), dir.path().join("client.ts")).expect("a file");
        let settings = format!("{FILES}/redocly.yaml");
        let arguments = ["openapi.json", "--output", "types.ts", "--redocly", &settings];
        self.run(dir.path(), &self.generator, &arguments)?;
        let arguments = ["--noEmit", "--strict", "--target", "es2022", "client.ts"];
        self.run(dir.path(), &self.compiler, &arguments)
    }

    fn run(&self, dir: &Path, script: &Path, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.node);
        command.arg(script).args(arguments).current_dir(dir);
        let output = command.output().expect("node runs");
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(String::from_utf8_lossy(&said).into_owned())
    }
}

fn document() -> Value {
    serde_json::from_str(&tenure_server::document()).expect("JSON")
}

#[tokio::test]
async fn description_is_valid_and_its_types_compile() {
    let Some(tools) = Tools::find() else { return };
    if let Err(said) = tools.check(&document()) {
        panic!("{said}");
    }
}

/// One route is enough to see that the validator reads it.
#[tokio::test]
async fn invalid_description_is_rejected() {
    let Some(tools) = Tools::find() else { return };
    let mut broken = document();
    let members = "/v1/groups/{g}/members";
    broken["paths"] = json!({ members: broken["paths"][members] });
    let join = "/paths/~1v1~1groups~1{g}~1members/post";
    for (field, value) in [
        ("operationId", json!("members_list")),
        ("parameters", json!([])),
        ("responses/201/links", json!(7)),
        (
            "responses/201/content/application~1json/schema",
            json!({"$ref": "#/components/schemas/Nothing"}),
        ),
    ] {
        let pointer = format!("{join}/{field}");
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        broken.pointer_mut(parent).expect("an object")[key] = value;
    }
    let said = tools.check(&broken).expect_err("it is invalid");
    for fault in [
        "unique `operationId`",
        "path parameter `{g}`",
        "post/responses/201/links",
        "resolve $ref",
    ] {
        assert!(said.contains(fault), "{fault}: {said}");
    }
}
