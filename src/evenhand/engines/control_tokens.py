"""Control tokens of model families, by which a server's tokeniser is probed; one line for each family.

None of them is looked for by name in a pair: `markup.break_up` goes by their shapes, which new families share.
"""

from __future__ import annotations

FAMILIES: dict[str, str] = {
    "ChatML, Qwen": "<|im_start|> <|im_end|> <|endoftext|> <|object_ref_start|> <|vision_start|> <|vision_end|>"
    " <|image_pad|> <tool_call> </tool_call> <tool_response> <think> </think> <|fim_prefix|> <|repo_name|>",
    "Llama 2": "<s> </s> <unk> [INST] [/INST] <<SYS>> <</SYS>>",
    "Llama 3, 4": "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|eom_id|>"
    " <|python_tag|> <|reserved_special_token_0|> <|header_start|> <|eot|> <|finetune_right_pad_id|>",
    "DeepSeek": "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜tool▁calls▁begin｜>"
    " <｜tool▁outputs▁end｜> <｜fim▁hole｜> <|EOT|> ｜DSML｜ <｜▁pad▁｜>",
    "Mistral": "[SYSTEM_PROMPT] [/SYSTEM_PROMPT] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS]"
    " [/TOOL_RESULTS] [IMG] [THINK] [/THINK] [ARGS] [CALL_ID] [PREFIX] [SUFFIX] [MIDDLE] [control_8]",
    "Gemma": "<bos> <eos> <pad> <mask> <start_of_turn> <end_of_turn> <start_of_image> <unused42> <|turn> <turn|>",
    "Phi": "<|system|> <|user|> <|assistant|> <|end|> <|im_sep|> <|placeholder1|>",
    "GLM": "[gMASK] [sMASK] [MASK] <sop> <eop> <|observation|> <|begin_of_image|> <arg_key> </arg_value>"
    " <|code_prefix|>",
    "Kimi": "<|im_user|> <|im_assistant|> <|im_system|> <|im_middle|> <|tool_calls_section_begin|>"
    " <|media_start|> [BOS] [EOS] [EOT] [PAD] [UNK] ◁think▷ ◁/think▷",
    "Hunyuan": "<|startoftext|> <|extra_0|> <|eos|> <｜hy_User｜> <｜hy_Assistant｜> <｜hy_place▁holder▁no▁2｜>"
    " <answer> </answer>",
    "EXAONE": "[|system|] [|user|] [|assistant|] [|endofturn|] [|tool|]",
    "Nemotron": "<SPECIAL_11> <SPECIAL_12> <extra_id_0> <extra_id_1>",
    "Command R": "<BOS_TOKEN> <EOS_TOKEN> <PAD> <CLS> <|START_OF_TURN_TOKEN|> <|END_OF_TURN_TOKEN|> <|USER_TOKEN|>"
    " <|CHATBOT_TOKEN|> <|START_THINKING|>",
    "Granite": "<|start_of_role|> <|end_of_role|> <|tool_call|>",
    "gpt-oss": "<|start|> <|message|> <|channel|> <|return|> <|constrain|> <|call|>",
    "MiniMax": "]~b] ]~!b[ [e~[ ]!p~[ ]!d~[ ]<]image[>[ <beginning_of_sentence> <end_of_sentence>"
    " <minimax:tool_call>",
    "Seed": "<seed:bos> <seed:eos> <seed:think> </seed:think> <seed:cot_budget_reflect>",
    "InternLM": "<eoh> <eoa> <TOKENS_UNUSED_1> [UNUSED_TOKEN_146] <|action_start|>",
    "Baichuan": "<reserved_106> <reserved_107> <B_SYS> <C_Q>",
    "TeleChat, MiniCPM": "<_user> <_bot> <_end> <_system> <用户> <AI>",
    "Qwen-VL, Yuan": "<img> </img> <ref> </ref> <box> </box> <quad> <predict> <eod>",
    "Falcon": ">>QUESTION<< >>ANSWER<< >>SUMMARY<< >>UNUSED_12<<",
    "Ling": "<role> </role> <|role_end|> <|arithmetic_start|>",
    "Jamba, StarCoder, others": "<|bom|> <|eom|> <fim_prefix> <fim_middle> <file_sep> <repo_name> <empty_output>"
    " [CLS] [SEP] <cls> <sep> <ctrl99> <human> <bot>",
}
KNOWN: tuple[str, ...] = tuple(dict.fromkeys(token for line in FAMILIES.values() for token in line.split()))
