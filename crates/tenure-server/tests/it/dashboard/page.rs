//! A page in a browser: opened, asked, typed into. As much of the DevTools protocol as these tests need.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::common::PATIENCE;
use crate::dashboard::browser;

/// How large a screen is, and whether it is a phone's.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    pub phone: bool,
    pub dark: bool,
}

pub const DESK: Screen = Screen {
    width: 1280,
    height: 800,
    phone: false,
    dark: false,
};
pub const PHONE: Screen = Screen {
    width: 360,
    height: 740,
    phone: true,
    dark: false,
};

/// What is drawn in the light theme's colour of what is alive, or on its wash.
pub const GREEN: &str = "[...document.querySelectorAll('body *')].filter((one) => {
    const style = getComputedStyle(one);
    const colors = [style.color, style.backgroundColor, style.fill, style.stroke, style.borderColor];
    return one.checkVisibility() && colors.some((color) => ['rgb(11, 107, 77)', 'rgb(226, 241, 234)'].includes(color));
}).map((one) => one.tagName + ' ' + one.getAttribute('class') + ' ' + (one.innerText ?? '').slice(0, 40)).join('; ')";

pub struct Page {
    socket: WebSocketStream<TcpStream>,
    session: Option<String>,
    last: u64,
    base: String,
    /// What the page complained about.
    pub complaints: Vec<String>,
}

impl Page {
    /// Opens the dashboard of a daemon at a place; `None` without a browser.
    pub async fn open(base: &str, place: &str, screen: Screen) -> Option<Self> {
        let (address, path) = browser::devtools()?;
        let stream = TcpStream::connect(address).await.expect("the browser listens");
        let url = format!("ws://{address}{path}");
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.expect("a websocket");
        let mut page = Self {
            socket,
            session: None,
            last: 0,
            base: base.to_owned(),
            complaints: Vec::new(),
        };
        let context = page
            .call("Target.createBrowserContext", json!({"disposeOnDetach": true}))
            .await;
        let target = json!({"url": "about:blank", "browserContextId": context["browserContextId"]});
        let target = page.call("Target.createTarget", target).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = page.call("Target.attachToTarget", attach).await;
        page.session = Some(attached["sessionId"].as_str().expect("a session").to_owned());
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            page.call(domain, json!({})).await;
        }
        page.screen(screen).await;
        page.go(place).await;
        Some(page)
    }

    pub async fn screen(&mut self, screen: Screen) {
        let metrics = json!({
            "width": screen.width, "height": screen.height, "deviceScaleFactor": 1, "mobile": screen.phone,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if screen.dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Reloads the page at an address.
    pub async fn go(&mut self, place: &str) {
        // From elsewhere, or another place of the same page would only be another place.
        self.call("Page.navigate", json!({"url": "about:blank"})).await;
        let url = format!("{}/{place}", self.base);
        self.call("Page.navigate", json!({ "url": url })).await;
        self.until("the page runs", "globalThis.tenure && tenure.view").await;
    }

    /// Goes to another place within the page.
    pub async fn turn(&mut self, place: &str) {
        self.eval(&format!("location.hash = {}", json!(place))).await;
        let key = json!(place.trim_start_matches("#/"));
        let shown = format!("tenure.view.key === '' ? {key} === '' : {key}.startsWith(tenure.view.key)");
        self.until("the place is shown", &shown).await;
    }

    /// What an expression comes to.
    pub async fn eval(&mut self, expression: &str) -> Value {
        match self.attempt(expression).await {
            Ok(value) => value,
            Err(why) => panic!("{why} in {expression}"),
        }
    }

    async fn attempt(&mut self, expression: &str) -> Result<Value, String> {
        let ask = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", ask).await;
        match answer.get("exceptionDetails") {
            Some(details) => Err(details["exception"]["description"].to_string()),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    pub async fn text(&mut self, selector: &str) -> String {
        let all = format!(
            "[...document.querySelectorAll({})].map((one) => one.innerText).join('\\n')",
            json!(selector)
        );
        self.eval(&all).await.as_str().expect("text").to_owned()
    }

    /// Waits within the page until an expression is true.
    pub async fn until(&mut self, what: &str, condition: &str) {
        // A browser takes longer than a server for everything.
        let patience = (PATIENCE * 2).as_millis();
        let wait = format!(
            "new Promise((done, fail) => {{
                const end = performance.now() + {patience};
                const look = () => {{
                    let now = false;
                    try {{ now = ({condition}); }} catch {{}}
                    if (now) done(true);
                    else if (performance.now() > end) fail(new Error('\\n' + document.body.innerText.slice(0, 3000)));
                    else setTimeout(look, 25);
                }};
                look();
            }})"
        );
        for _ in 0..5 {
            match self.attempt(&wait).await {
                Ok(_) => return,
                // The page went elsewhere while it was asked.
                Err(why) if why.contains("context was destroyed") || why == "null" => {}
                Err(why) => panic!(
                    "in vain until {what} ({condition}); the page:{}",
                    why.replace("\\n", "\n")
                ),
            }
        }
        panic!("the page went elsewhere all the time, in vain until {what}");
    }

    /// Waits until an element says something.
    pub async fn until_says(&mut self, selector: &str, words: &str) {
        let condition = format!(
            "[...document.querySelectorAll({})].some((one) => one.innerText.replace(/\\s+/g, ' ').includes({}))",
            json!(selector),
            json!(words)
        );
        self.until(&format!("{selector} says {words:?}"), &condition).await;
    }

    /// Waits until no element says something any more.
    pub async fn until_silent(&mut self, selector: &str, words: &str) {
        let condition = format!(
            "![...document.querySelectorAll({})].some((one) => !one.hidden && one.innerText.includes({}))",
            json!(selector),
            json!(words)
        );
        self.until(&format!("{selector} does not say {words:?} any more"), &condition)
            .await;
    }

    /// Clicks on what a selector finds first.
    pub async fn click(&mut self, selector: &str) {
        let found = format!("document.querySelector({})", json!(selector));
        let seen = format!("{found}?.checkVisibility()");
        self.until(&format!("{selector} can be clicked on"), &seen).await;
        self.eval(&format!("{found}.click()")).await;
    }

    /// Everything on the page that has the colour of what is alive, by its class and text.
    pub async fn green(&mut self) -> String {
        self.eval(GREEN).await.as_str().expect("text").to_owned()
    }

    /// Presses a key: a character, or a name.
    pub async fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "Escape" => 27,
            "ArrowDown" => 40,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "End" => 35,
            "Home" => 36,
            _ => 0,
        };
        let text = match key {
            "Enter" => Some("\r"),
            _ if key.chars().count() == 1 => Some(key),
            _ => None,
        };
        let mut down = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code});
        if let Some(text) = text {
            down["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", down).await;
        let up = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", up).await;
    }

    pub async fn write(&mut self, text: &str) {
        self.until("a field has the focus", "document.activeElement.matches('input')")
            .await;
        self.call("Input.insertText", json!({ "text": text })).await;
        // Chromium may handle a later key first.
        let written = format!("document.activeElement.value.includes({})", json!(text));
        self.until("the text is in the field", &written).await;
    }

    /// Whether nothing was thrown and no policy was broken. Failed requests are the business of tests that expect none.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.complaints.is_empty(), "{:#?}", self.complaints);
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let message = Message::text(message.to_string());
        self.socket.send(message).await.expect("the browser listens");
        loop {
            let said = tokio::time::timeout(PATIENCE * 3, self.socket.next()).await;
            let said = said.unwrap_or_else(|_| panic!("the browser does not answer to {method}"));
            let Message::Text(text) = said.expect("the browser is there").expect("a message") else {
                continue;
            };
            let said: Value = serde_json::from_str(&text).expect("JSON");
            if said["id"] == id {
                assert!(said.get("error").is_none(), "{method}: {said}");
                return said["result"].clone();
            }
            self.hear(&said);
        }
    }

    fn hear(&mut self, said: &Value) {
        let params = &said["params"];
        match said["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                let details = &params["exceptionDetails"];
                self.complaints
                    .push(format!("{} {}", details["text"], details["exception"]["description"]));
            }
            Some("Log.entryAdded") if params["entry"]["source"] != "network" && params["entry"]["level"] == "error" => {
                self.complaints.push(params["entry"]["text"].to_string());
            }
            _ => {}
        }
    }
}
