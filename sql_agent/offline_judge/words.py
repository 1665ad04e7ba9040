"""The closed list of words that an answer may put around the facts at no cost: whole phrases that carry nothing else.

Guarantees: no entry denies, doubts, permits or forbids, and none names a drug, a disease or a number. `RELATIONS` count
only where the question asks for that one kind of thing. What else is free says exam.py.
"""

from __future__ import annotations

PHRASES = """
您好 你好 谢谢 答 答案 答案是 回答 根据查询结果 根据数据库的查询结果 根据数据库查询结果 根据数据库记录
根据数据库 根据数据库的记录 根据记录 根据查询 经查询 经检索 经查 据记载 查询结果 查询结果如下 查询结果显示
结果如下 查到 查到的 如下 以下 以下是 数据库 数据库中 数据库显示 数据库记载 数据库原文 记录 记录中 记录显示 原文
写有 写着 写到 记载 记载的 资料 希望对您有帮助 希望对你有帮助 希望以上信息对您有帮助 希望这些信息对您有帮助
以上就是全部内容 以上是全部内容 以上就是查询结果 以上是查询结果 如果还想知道别的 如果您还有其他问题
如果还有其他问题 如有其他问题 随时告诉我 请随时告诉我 欢迎随时提问 总结 总之 综上 综上所述 首先 其次 第1 第2 第3
和 与 及 以及 还有 同时 另外 此外 其中 分别 分别是 分别为 包括 包含 含 有 是 为 的 也 都 均 则 而 其 它 等 既 即
药 该 本 该药 该药品 该药物 该病 该疾病 这种药 这种病 本品 药品 药物 疾病 患者 病人 者 人群 名称 字段 内容 序号
编号 项目 共 共有 共计 1共 1共有 总共 总共有 合计 总数 数量 种 个 款 项 条 类 主要 主要有 主要包括 主要是 主要为
从而 并 并且 而且 且 采用 由 对比 对比项 具体 具体为 the answer is are and of include includes hello according
to database in it 有关 因为 所以 因此
"""
RELATIONS = [  # what questions call a kind of thing, and how a sentence says it
    ("适应|适用|用途|主治|用于", "用于 用于治疗 可用于 可用于治疗 主要用于 适用于 治疗 适应症 适应证"),
    ("不良反应|副作用|副反应|不适反应", "可引起 会引起 引起 可出现 会出现 出现 不良反应 副作用"),
    ("禁", "禁用 禁用于 忌用 禁忌 禁忌症"),
    ("表现|症状", "表现 表现为 症状 症状有"),
    ("治疗|救治|处理", "可采用 治疗"),
    ("鉴别|区分|混淆", "需与 需要与 相鉴别 鉴别"),
]
