//! `tenure labels`: replaces the labels of a living member.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;
use tenure_core::Store;
use tenure_core::id::TenureId;
use tenure_core::membership::Labels;
use tenure_core::store::Call;

use crate::acting::ActingArgs;
use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::exit::{DONE, Usage, say};
use crate::output::{json, pairs};

/// Replaces all labels of a living member.
///
/// Its tenure and what it holds stay. Labels that are not given are removed. A member that lapses and rejoins uses the labels
/// that its own process knows.
#[derive(Debug, Clone, Args)]
pub(crate) struct SetLabels {
    /// The labels from now on.
    #[arg(value_name = "NAME=VALUE", value_parser = label, required_unless_present = "none")]
    labels: Vec<(String, String)>,
    /// Remove all labels.
    #[arg(long, conflicts_with = "labels")]
    none: bool,
    #[command(flatten)]
    acting: ActingArgs,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Parses `NAME=VALUE`.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The labels of pairs with different names.
pub(crate) fn labels(pairs: &[(String, String)]) -> anyhow::Result<Labels> {
    let labels: BTreeMap<_, _> = pairs.iter().cloned().collect();
    if labels.len() < pairs.len() {
        return Err(Usage::new("a label is given twice; give each name once").into());
    }
    Ok(Labels::new(labels)?)
}

#[derive(Serialize)]
struct Labelled {
    tenure: TenureId,
    labels: Labels,
}

impl SetLabels {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let (group, labels) = (&self.group.name, labels(&self.labels)?);
        let tenure = self.acting.tenure(store, group).await?;
        store.set_labels(group, &tenure, &labels, Call::default()).await?;
        let shown = match labels.is_empty() {
            true => "none".to_owned(),
            false => pairs(labels.as_map()),
        };
        say(format_args!("labels of {tenure}: {shown}"));
        if self.format.json {
            json(&Labelled { tenure, labels })?;
        }
        Ok(DONE)
    }
}
