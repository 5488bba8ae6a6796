// The Vercel AI SDK with one provider, once through: node ai_sdk.mjs PROVIDER ADDRESS COUNT
import { generateText, stepCountIs, streamText, tool, jsonSchema } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createAnthropic } from "@ai-sdk/anthropic";

const [provider, address, count] = process.argv.slice(2);
const baseURL = `${address}/v1`;
const models = {
  compatible: () =>
    createOpenAICompatible({ name: "mtplx", baseURL, apiKey: "none", includeUsage: true })("dictated"),
  chat: () => createOpenAI({ baseURL, apiKey: "none" }).chat("dictated"),
  responses: () => createOpenAI({ baseURL, apiKey: "none" }).responses("dictated"),
  anthropic: () => createAnthropic({ baseURL, apiKey: "none" })("dictated"),
};
const model = models[provider]();
const system = "You are a careful assistant who answers in one short sentence. ".repeat(12);
// Without it the SDK sends references to answers that it believes the server has kept.
const providerOptions = { openai: { store: false } };
const settings = { model, instructions: system, maxRetries: 0, providerOptions };
const out = {};

const messages = [{ role: "user", content: "One. <say>First answer.</say>" }];
const first = await generateText({ ...settings, messages });
messages.push(...first.response.messages);
messages.push({ role: "user", content: "Two. <say>Second answer.</say>" });
const second = await generateText({ ...settings, messages });
out.texts = [first.text, second.text];
out.prompt = first.usage.inputTokens;
out.cached = second.usage.inputTokenDetails?.cacheReadTokens ?? second.usage.cachedInputTokens;

const add = tool({
  description: "Add two numbers",
  inputSchema: jsonSchema({
    type: "object",
    properties: { a: { type: "integer" }, b: { type: "integer" } },
    required: ["a", "b"],
  }),
  execute: async ({ a, b }) => String(a + b),
});
const call = JSON.stringify({ name: "add", arguments: { a: 40, b: 2 } });
const worked = await generateText({
  ...settings, tools: { add }, stopWhen: stepCountIs(3), prompt: `Go. <call>${call}</call>`,
});
out.steps = worked.steps.length;
out.input = worked.steps[0].toolCalls[0]?.input;
out.tool = worked.text;

const streamed = streamText({
  ...settings, tools: { add }, stopWhen: stepCountIs(3), prompt: `Go. <call>${call}</call>`,
});
out.streamedTool = "";
for await (const part of streamed.textStream) out.streamedTool += part;

const stop = new AbortController();
const long = streamText({
  ...settings, prompt: `<count>${count}</count>`, abortSignal: stop.signal, onError() {},
});
out.pieces = 0;
out.counted = "";
for await (const part of long.textStream) {
  out.pieces += 1;
  out.counted += part;
  if (out.counted.length > 40) stop.abort();
}
console.log(JSON.stringify(out));
