//! Reading a listing page by page, up to a limit.

use std::fmt;

use serde::Serialize;
use tenure_core::Store;
use tenure_core::error::Result;
use tenure_core::id::Group;
use tenure_core::store::{MAX_PAGE, Page, PageRequest};

use crate::cli::{FormatArgs, PageArgs};
use crate::exit::{DONE, FAILED, say};
use crate::groups;
use crate::output::json;

/// Reads pages until the limit or the end of the listing.
///
/// # Errors
/// Those of reading a page.
pub(crate) async fn read<T>(
    args: &PageArgs,
    mut page: impl AsyncFnMut(PageRequest) -> Result<Page<T>>,
) -> Result<Page<T>> {
    let mut all = Page {
        items: Vec::new(),
        next: args.after.clone(),
    };
    loop {
        let left = args
            .limit
            .saturating_sub(u32::try_from(all.items.len()).unwrap_or(u32::MAX));
        if left == 0 {
            return Ok(all);
        }
        let read = page(PageRequest::new(all.next.take(), left.min(MAX_PAGE))?).await?;
        all.items.extend(read.items);
        all.next = read.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

/// Reads a listing of a group as [`read`] does. An empty one is an error when the group does not exist.
///
/// # Errors
/// Those of reading, and `NotFound` for an unknown group.
pub(crate) async fn read_group<T>(
    (store, group): (&dyn Store, &Group),
    args: &PageArgs,
    page: impl AsyncFnMut(PageRequest) -> Result<Page<T>>,
) -> anyhow::Result<Page<T>> {
    let page = read(args, page).await?;
    if page.items.is_empty() && args.after.is_none() {
        groups::must_exist(store, group).await?;
    }
    Ok(page)
}

/// Passes on what was looked up in a group. Nothing found is an error when the group does not exist.
///
/// # Errors
/// Those of reading, and `NotFound` for an unknown group.
pub(crate) async fn found_in_group<T>(
    (store, group): (&dyn Store, &Group),
    found: Option<T>,
) -> anyhow::Result<Option<T>> {
    if found.is_none() {
        groups::must_exist(store, group).await?;
    }
    Ok(found)
}

/// Prints what was looked up, as `W` when that is JSON; otherwise says that it is missing, which is a failure.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn print_one<W: Serialize + From<T>, T>(
    format: &FormatArgs,
    found: Option<T>,
    show: impl FnOnce(&[T]) -> anyhow::Result<()>,
    missing: impl fmt::Display,
) -> anyhow::Result<u8> {
    match found {
        None => {
            say(missing);
            return Ok(FAILED);
        }
        Some(found) if format.json => json(&W::from(found))?,
        Some(found) => show(&[found])?,
    }
    Ok(DONE)
}

/// Prints a listing, as `W` when that is JSON.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn print_page<W: Serialize + From<Page<T>>, T>(
    format: &FormatArgs,
    page: Page<T>,
    show: impl FnOnce(&[T]) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    if format.json {
        json(&W::from(page))?;
    } else {
        show(&page.items)?;
        tell_of_more(page.items.len(), page.next.as_deref());
    }
    Ok(DONE)
}

/// Says on stderr that a listing has more rows.
pub(crate) fn tell_of_more(shown: usize, next: Option<&str>) {
    if let Some(next) = next {
        say(format_args!(
            "there is more: --limit {} or --after \"{next}\"",
            shown.saturating_mul(10).max(10)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn numbers(limit: u32, after: Option<&str>) -> Page<u32> {
        let args = PageArgs {
            limit,
            after: after.map(str::to_owned),
        };
        read(&args, async |request: PageRequest| {
            let from = request.after.map_or(0, |after| after.parse().unwrap());
            let to = (from + request.limit.min(100)).min(250);
            Ok(Page {
                items: (from..to).collect(),
                next: (to < 250).then(|| to.to_string()),
            })
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn listing_stops_at_its_limit_with_a_cursor() {
        let page = numbers(130, None).await;
        assert_eq!((page.items.len(), page.next.as_deref()), (130, Some("130")));
        let rest = numbers(1_000, page.next.as_deref()).await;
        assert_eq!(
            (rest.items.first(), rest.items.len(), rest.next),
            (Some(&130), 120, None)
        );
    }
}
