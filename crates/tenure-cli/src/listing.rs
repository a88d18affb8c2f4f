//! Reading a listing page by page, up to as many rows as asked for.

use tenure_core::error::Result;
use tenure_core::store::{MAX_PAGE, Page, PageRequest};

use crate::cli::PageArgs;
use crate::exit::say;

/// Reads pages until there are enough rows or no more.
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

/// Tells people that there is more than they see.
pub(crate) fn tell_of_more<T>(page: &Page<T>) {
    if let Some(next) = &page.next {
        say(format_args!(
            "there is more: --limit {} or --after {next:?}",
            page.items.len().saturating_mul(10).max(10)
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
    async fn it_reads_as_many_rows_as_asked_for_and_tells_where_to_go_on() {
        let page = numbers(130, None).await;
        assert_eq!((page.items.len(), page.next.as_deref()), (130, Some("130")));
        let rest = numbers(1_000, page.next.as_deref()).await;
        assert_eq!(
            (rest.items.first(), rest.items.len(), rest.next),
            (Some(&130), 120, None)
        );
    }
}
